// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// dryRunsAtOnce limits the load on the API server: each dry run passes every admission webhook of
// the cluster.
const dryRunsAtOnce = 4

// lister reads the objects of a cluster.
type lister struct {
	*command.CLI
	settings *annotations.Settings
	typed    kubernetes.Interface
	untyped  dynamic.Interface
	metadata metadata.Interface
	// installation is nil if the user may not read it, and so is registration.
	installation *cluster.Installation
	registration *admissionregistrationv1.MutatingWebhookConfiguration
	// unread is why the rules of the webhook cannot be evaluated here, or nil if they can.
	unread error
	asker  *Asker
	// noGuard is the problem because of which labels have no effect, or empty if there is none.
	noGuard string
	// namespaces are the namespaces to look at.
	namespaces map[string]*Namespace
	// found are the findings about parts that could not be read.
	found      []finding.Finding
	configMaps ConfigMapLimit
	query
}

// query selects the pods to list.
type query struct {
	// scope is the namespace; empty for all.
	scope string
	// selector selects pods, and names are the objects to look at; empty for all.
	selector string
	names    []string
	noDryRun bool
}

// eachNamespace calls do for each namespace that has rows, or something that could not be read.
func eachNamespace(ctx context.Context, c *command.CLI, q *query, do func([]Row, []finding.Finding) error) error {
	defer c.Progress("reading ServiceAccounts")()
	scope := q.scope
	l, err := newLister(ctx, c, q)
	if err == nil {
		err = c.EachServiceAccount(ctx, scope, func(object *metav1.PartialObjectMetadata) error {
			if n := l.namespaces[object.Namespace]; n != nil {
				n.AddServiceAccount(object)
			}
			return nil
		})
	}
	switch {
	case apierrors.IsForbidden(err) && scope == metav1.NamespaceAll:
		return fmt.Errorf("%w. Name a namespace with --namespace", err)
	case err != nil:
		return err
	}
	maps.DeleteFunc(l.namespaces, func(_ string, n *Namespace) bool { return n.Empty() })
	if len(l.found) > 0 {
		if err := do(nil, l.found); err != nil {
			return err
		}
	}
	progress, total := c.Periodically(), len(l.namespaces)
	for i, name := range slices.Sorted(maps.Keys(l.namespaces)) {
		progress("%d of %d namespaces ...", i, total)
		l.found = nil
		rows, err := l.rows(ctx, l.namespaces[name])
		if err != nil {
			return err
		}
		delete(l.namespaces, name) // with its pods
		if err := do(rows, l.found); err != nil {
			return err
		}
	}
	if f := l.configMaps.Finding(); f.Text != "" {
		return do(nil, []finding.Finding{f})
	}
	return nil
}

// newLister returns a lister that has read the installation and the namespaces. A user who may
// not read the webhook configuration gets the answer without it.
func newLister(ctx context.Context, c *command.CLI, q *query) (*lister, error) {
	s, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst) // of all clients together
	// Pods are large, and faster to read in this form.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	l := &lister{CLI: c, settings: s, unread: c.Webhook.Unread, namespaces: map[string]*Namespace{}, query: *q}
	if l.typed, err = kubernetes.NewForConfig(config); err == nil {
		l.metadata, err = metadata.NewForConfig(config)
	}
	if err == nil {
		l.untyped, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	if err := l.readInstallation(ctx); err != nil {
		return nil, err
	}
	if err := l.readNamespaces(ctx, q.scope); err != nil {
		return nil, err
	}
	options := Options{Registration: l.registration, Unread: l.unread, NoDryRun: q.noDryRun, Concurrent: dryRunsAtOnce}
	l.asker, err = NewAsker(config, s, options)
	return l, err
}

// readInstallation reads the webhook configuration, and looks for the guard.
func (l *lister) readInstallation(ctx context.Context) error {
	parts, err := l.Survey()
	if err != nil {
		return err
	}
	installation, err := parts.Installation(ctx)
	if err != nil {
		return l.skip(err, aboutRights, "", "labels and settings decide for which namespaces Lanyard is called")
	}
	l.installation, l.registration = installation, installation.Registration()
	if installation.Absent() {
		l.found = append(l.found, notInstalled())
	}
	if len(installation.Registrations) == 0 { // check judges the policies
		return nil
	}
	l.noGuard, err = parts.Guard(ctx, l.registration)
	if err = l.skip(err, aboutRights, "", "a guarded ServiceAccount has the label, but it is unknown whether there is a guard"); err != nil {
		return fmt.Errorf("guard of %s: %w", l.registration.Name, err)
	}
	return nil
}

// notInstalled is the finding about a cluster without an installation.
func notInstalled() finding.Finding {
	return finding.Finding{
		Status: finding.Failed, About: "registration", Reason: "not_installed", Text: "Lanyard is not installed, so no new pod gets credentials",
		Fix: "To see what is missing or left over: lanyard check", Link: finding.Page("cli/check.md"),
	}
}

// aboutRights are parts of the installation or of a namespace that the user may not read.
const aboutRights = "rights"

// skip notes a part that the user may not read, with its effect. It returns another error.
func (l *lister) skip(err error, about, namespace, effect string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	f := finding.Unreadable(effect, err)
	f.About, f.Text = about, strings.TrimPrefix(namespace+": ", ": ")+"skipped: "+effect+": "+err.Error()
	l.found = append(l.found, f)
	return nil
}

// readNamespaces reads one namespace, or all.
func (l *lister) readNamespaces(ctx context.Context, scope string) error {
	list, err := command.Namespaces(ctx, l.typed, scope)
	if err != nil && scope != metav1.NamespaceAll {
		l.unread = cmp.Or(l.unread, err)
		err = l.skip(err, aboutRights, scope, "the labels and the policy of the namespace are unknown")
	}
	if err != nil {
		return err
	}
	for _, meta := range list {
		meta.ManagedFields = nil // which can be large
		n := NewNamespace(l.settings, meta, l.registration, cluster.CalledFor(l.registration, l.settings, meta))
		n.unread = l.unread != nil
		l.namespaces[meta.Name] = n
	}
	return nil
}

// ConfigMapLimit limits the ConfigMaps that a run reads, and counts the others: in a large cluster, each
// pod may have its own.
type ConfigMapLimit struct{ read, Unread int }

// maxConfigMaps is how many ConfigMaps a run reads. One more than the burst of requests costs 20 ms.
const maxConfigMaps = 100

// Finding returns the finding about ConfigMaps that were left out; its Text is empty if there is
// none.
func (c *ConfigMapLimit) Finding() finding.Finding {
	if c.Unread == 0 {
		return finding.Finding{}
	}
	return finding.Finding{
		Status: finding.NotApplicable, About: "pods", Reason: "configmaps_not_read",
		Text: fmt.Sprintf("%d ConfigMaps with variables of containers were not read: only %d are read at once", c.Unread, maxConfigMaps),
		Fix:  "To read them, look at one namespace or one workload.",
	}
}

// ReadPods adds the pods of the namespace that the selector selects, and works out their states.
func (n *Namespace) ReadPods(ctx context.Context, client kubernetes.Interface, selector string, configMaps *ConfigMapLimit) error {
	defer clear(n.comparers) // a large cluster has very many
	list := func(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
		options.LabelSelector = selector
		return client.CoreV1().Pods(n.Name).List(ctx, options)
	}
	err := command.EachObject(ctx, list, func(pod *corev1.Pod) error {
		n.AddPod(pod)
		return nil
	})
	if err != nil {
		return err
	}
	// Without a ConfigMap, a pod is current as far as can be seen.
	variables := ConfigMaps{}
	for _, name := range n.ConfigMaps() {
		if configMaps.read == maxConfigMaps {
			configMaps.Unread++
			continue
		}
		configMaps.read++
		if configMap, err := client.CoreV1().ConfigMaps(n.Name).Get(ctx, name, metav1.GetOptions{}); err == nil {
			variables.Add(n.Settings, name, configMap.Data)
		}
	}
	return n.SetConfigMaps(variables)
}

// rows reads the pods of a namespace and their owners, asks for the credentials of new
// pods, and returns the rows.
func (l *lister) rows(ctx context.Context, n *Namespace) ([]Row, error) {
	if err := n.ReadPods(ctx, l.typed, l.selector, &l.configMaps); err != nil {
		if err := l.skip(err, "pods", n.Name, "the pods of the namespace are not counted"); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		return nil, nil
	}
	for kinds := n.UnreadOwners(); len(kinds) > 0; kinds = n.UnreadOwners() {
		for i := range kinds {
			kind := &kinds[i]
			err := command.EachObject(ctx, l.metadata.Resource(kind.Resource).Namespace(n.Name).List, func(object *metav1.PartialObjectMetadata) error {
				n.AddOwner(kind, object)
				return nil
			})
			if err := l.skip(err, "pods", n.Name, "pods with an owner of the kind "+kind.Kind+" are listed by their own names"); err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.Resource.Resource, err)
			}
		}
	}
	if len(l.names) > 0 {
		n.Select(l.names)
	}
	if err := l.ask(ctx, n); err != nil {
		return nil, err
	}
	rows := n.Rows()
	if l.selector != "" { // which selects pods
		rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Pods == 0 })
	}
	for i := range rows {
		if l.noGuard != "" && rows[i].Guard == cluster.GuardOn {
			rows[i].Guard, rows[i].NoGuard = cluster.GuardOff, l.noGuard
		}
	}
	return rows, nil
}

// ask asks the API server about the pods that seem to differ from a new pod.
func (l *lister) ask(ctx context.Context, n *Namespace) error {
	var group errgroup.Group
	group.SetLimit(dryRunsAtOnce)
	for _, q := range n.Questions() {
		if err := l.readTemplate(ctx, n, q); err != nil {
			return err
		}
		group.Go(func() error {
			return q.Ask(func(namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured) Answer {
				return l.asker.Ask(ctx, namespace, serviceAccount, pod)
			})
		})
	}
	return group.Wait()
}

// readTemplate reads the pod template that the question is about, if there is one. Whoever creates
// a pod writes its owner reference, so the reference may be wrong.
func (l *lister) readTemplate(ctx context.Context, n *Namespace, q *Question) error {
	reference := q.Owner()
	if reference == nil {
		return nil
	}
	kind, known := cluster.ByOwner(reference)
	if !known {
		return nil
	}
	object, err := l.untyped.Resource(kind.Resource).Namespace(n.Name).Get(ctx, reference.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && object.GetUID() != reference.UID {
		return nil
	}
	if err != nil {
		return l.skip(err, "pods", n.Name, "could not determine what the containers of "+kind.Name(reference.Name)+" set themselves")
	}
	pod, err := cluster.PodOf(object)
	if err != nil {
		return fmt.Errorf("%s: %w", kind.Name(reference.Name), err)
	}
	pod.SetNamespace("")
	q.SetTemplate(pod)
	return nil
}
