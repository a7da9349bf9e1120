// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

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

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// dryRunsAtOnce limits the load on the API server: each dry run passes every admission webhook of
// the cluster.
const dryRunsAtOnce = 4

// Skipped is something that could not be read, because the user lacks a right.
type Skipped struct {
	Namespace string `json:"namespace,omitempty"`
	// Effect is the part of the result that is missing or not certain.
	Effect string `json:"effect"`
	// Why is the error of the API server, which names the right.
	Why string `json:"why"`
}

// lister reads the objects of a cluster.
type lister struct {
	*command.CLI
	settings *annotations.Settings
	typed    kubernetes.Interface
	untyped  dynamic.Interface
	metadata metadata.Interface
	// registration is Lanyard's; nil if the user may not read it.
	registration *admissionregistrationv1.MutatingWebhookConfiguration
	// unread is why the rules of the webhook cannot be evaluated here; nil if they can.
	unread error
	asker  *ask.Asker
	// noGuard reports whether the cluster has no guard, so that labels have no effect.
	noGuard bool
	// namespaces are the namespaces to look at.
	namespaces map[string]*Namespace
	skipped    []Skipped
}

// eachNamespace calls do for each namespace that has rows, or something that was skipped.
func eachNamespace(ctx context.Context, c *command.CLI, scope string, noDryRun bool, do func([]Row, []Skipped) error) error {
	defer c.Progress("reading ServiceAccounts")()
	l, err := newLister(ctx, c, scope, noDryRun)
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
	if len(l.skipped) > 0 {
		if err := do(nil, l.skipped); err != nil {
			return err
		}
	}
	progress, total := c.Periodically(), len(l.namespaces)
	for i, name := range slices.Sorted(maps.Keys(l.namespaces)) {
		progress("%d of %d namespaces ...", i, total)
		l.skipped = nil
		rows, err := l.rows(ctx, l.namespaces[name])
		if err != nil {
			return err
		}
		delete(l.namespaces, name) // with its pods
		if err := do(rows, l.skipped); err != nil {
			return err
		}
	}
	return nil
}

// newLister returns a lister that has read the installation and the namespaces. A user who may
// not read the webhook configuration gets the answer without it.
func newLister(ctx context.Context, c *command.CLI, scope string, noDryRun bool) (*lister, error) {
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
	l := &lister{CLI: c, settings: s, unread: c.Webhook.Unread, namespaces: map[string]*Namespace{}}
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
	if err := l.readNamespaces(ctx, scope); err != nil {
		return nil, err
	}
	options := ask.Options{Registration: l.registration, Unread: l.unread, NoDryRun: noDryRun, Concurrent: dryRunsAtOnce}
	l.asker, err = ask.New(config, s, options)
	return l, err
}

// readInstallation reads the webhook configuration, and looks for the guard.
func (l *lister) readInstallation(ctx context.Context) (err error) {
	if l.registration, err = l.Installation(ctx, l.typed); err != nil {
		return l.skip(err, "", "labels and settings decide for which namespaces Lanyard is called")
	}
	if l.registration == nil { // check judges the policies
		return nil
	}
	problem, err := cluster.GuardProblem(ctx, l.typed, l.registration)
	l.noGuard = problem != ""
	if err = l.skip(err, "", "a guarded ServiceAccount has the label, but it is not known whether there is a guard"); err != nil {
		return fmt.Errorf("guard of %s: %w", l.registration.Name, err)
	}
	return nil
}

// skip notes a part that the user may not read, with its effect. It returns another error.
func (l *lister) skip(err error, namespace, effect string) error {
	if apierrors.IsForbidden(err) {
		l.skipped = append(l.skipped, Skipped{Namespace: namespace, Effect: effect, Why: err.Error()})
		return nil
	}
	return err
}

// readNamespaces reads one namespace, or all.
func (l *lister) readNamespaces(ctx context.Context, scope string) error {
	list, err := command.Namespaces(ctx, l.typed, scope)
	if err != nil && scope != metav1.NamespaceAll {
		l.unread = cmp.Or(l.unread, err)
		err = l.skip(err, scope, "the labels and the policy of the namespace are unknown")
	}
	if err != nil {
		return err
	}
	for _, meta := range list {
		meta.ManagedFields = nil // which can be large
		n := NewNamespace(l.settings, meta, l.registration, cluster.CalledFor(l.registration, l.settings, meta))
		n.unread = l.unread
		l.namespaces[meta.Name] = n
	}
	return nil
}

// ReadPods adds the pods of the namespace.
func (n *Namespace) ReadPods(ctx context.Context, client kubernetes.Interface) error {
	defer clear(n.comparers) // a large cluster has very many
	return command.EachObject(ctx, client.CoreV1().Pods(n.Name).List, func(pod *corev1.Pod) error {
		n.AddPod(pod)
		return nil
	})
}

// rows reads the pods of a namespace and their owners, asks for the credentials of new
// pods, and returns the rows.
func (l *lister) rows(ctx context.Context, n *Namespace) ([]Row, error) {
	if err := n.ReadPods(ctx, l.typed); err != nil {
		if err := l.skip(err, n.Name, "the pods of the namespace are not counted"); err != nil {
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
			if err := l.skip(err, n.Name, "pods with an owner of the kind "+kind.Kind+" are listed by their own names"); err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.Resource.Resource, err)
			}
		}
	}
	if err := l.ask(ctx, n); err != nil {
		return nil, err
	}
	rows := n.Rows()
	for i := range rows {
		if l.noGuard && rows[i].Guard == cluster.GuardOn {
			rows[i].Guard = cluster.GuardOff
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
			return q.Ask(func(namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured) ask.Answer {
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
		return l.skip(err, n.Name, "it is not known what the containers of "+kind.Name(reference.Name)+" set themselves")
	}
	pod, err := cluster.PodOf(object)
	if err != nil {
		return fmt.Errorf("%s: %w", kind.Name(reference.Name), err)
	}
	pod.SetNamespace("")
	q.SetTemplate(pod)
	return nil
}
