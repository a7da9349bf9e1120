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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// dryRunsAtOnce limits the load on the API server: each dry run passes every admission webhook of
// the cluster.
const dryRunsAtOnce = 4

// reader reads the objects of a cluster, and sends dry runs. If the user lacks a right, it
// continues without that part.
type reader struct {
	*command.CLI
	query
	settings *annotations.Settings
	typed    kubernetes.Interface
	untyped  dynamic.Interface
	metadata metadata.Interface
	guard
	// installation is nil if the user may not read it.
	installation *cluster.Installation
	// unread is why the rules of the webhook cannot be evaluated here, or nil if they can.
	unread error
	asker  *Asker
	// namespaces are the namespaces to look at.
	namespaces map[string]*Namespace
	// objects are the results of get for one namespace, and for explain.
	objects map[objectID]readObject
	// known is an answer that explain has already, or nil.
	known *known
	// missing are the findings about parts that the user may not read.
	missing    []finding.Finding
	configMaps ConfigMapLimit
}

// known is the answer about the template of an owner of pods.
type known struct {
	owner  types.UID
	answer *Answer
}

// objectID identifies an object.
type objectID struct {
	schema.GroupVersionResource
	namespace, name string
}

// readObject is what the API server returned for an object.
type readObject struct {
	*unstructured.Unstructured
	err error
}

// query selects the pods to look at.
type query struct {
	// scope is the namespace; empty for all.
	scope string
	// selector selects pods, and names are the objects to look at; empty for all.
	selector string
	names    []string
	noDryRun bool
}

// newReader returns a reader that has read the installation and the namespaces.
func newReader(ctx context.Context, c *command.CLI, q *query) (*reader, error) {
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
	r := &reader{CLI: c, query: *q, settings: s, unread: c.Webhook.Unread, namespaces: map[string]*Namespace{}, objects: map[objectID]readObject{}}
	if r.typed, err = kubernetes.NewForConfig(config); err == nil {
		r.metadata, err = metadata.NewForConfig(config)
	}
	if err == nil {
		r.untyped, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	if err := r.readInstallation(ctx); err != nil {
		return nil, err
	}
	if err := r.readNamespaces(ctx); err != nil {
		return nil, err
	}
	r.asker, err = NewAsker(config, s, Options{Registration: r.installation.Registration(), Unread: r.unread, NoDryRun: q.noDryRun, Concurrent: dryRunsAtOnce})
	return r, err
}

// What the user may lack a right for.
const (
	aboutNamespace = "the label and the policy of the namespace"
	aboutDryRun    = "the dry run of a pod"
)

// lacks reports whether a request for reading failed because the user lacks a right, and notes
// the right. purpose is the part of the result that needs the right.
func (r *reader) lacks(err error, purpose string) bool {
	right := finding.LackedRight(err)
	if right != "" {
		f := finding.NoRight(right, "%s", purpose)
		f.About = purpose
		r.missing = append(r.missing, f)
	}
	return right != ""
}

// readInstallation reads what injects pods, and whether there is a guard.
func (r *reader) readInstallation(ctx context.Context) error {
	parts, err := r.Survey()
	if err != nil {
		return err
	}
	if r.installation, err = parts.Installation(ctx); err != nil && !r.lacks(err, "the namespaces that Lanyard is called for, and the guard") {
		return err
	}
	r.problem = "its policy was not read"
	switch {
	case r.installation == nil:
		return nil
	case r.installation.Absent():
		r.problem = "its policies are those of a removed installation"
		r.left, err = parts.Leftovers(ctx)
	default:
		var problem string
		if problem, err = parts.Guard(ctx, r.installation.Registration()); err == nil {
			r.problem, r.off = problem, problem != ""
		}
	}
	if err != nil && !r.lacks(err, "the guard") {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

// readNamespaces reads one namespace, or all.
func (r *reader) readNamespaces(ctx context.Context) error {
	list, err := command.Namespaces(ctx, r.typed, r.scope)
	if err != nil && (len(list) == 0 || !r.lacks(err, aboutNamespace)) {
		return err
	}
	r.unread = cmp.Or(r.unread, err)
	for _, meta := range list {
		meta.ManagedFields = nil // which can be large
		n := NewNamespace(r.settings, meta, r.installation.Registration())
		n.guard = r.guard
		n.unread, n.compiled = r.unread != nil, r.installation.OnlyPolicies().Compiled()
		r.namespaces[meta.Name] = n
	}
	return nil
}

// eachNamespace reads the ServiceAccounts, and calls do for each namespace that has rows, or
// a part that could not be read.
func (r *reader) eachNamespace(ctx context.Context, do func([]Row, []finding.Finding) error) error {
	err := r.EachServiceAccount(ctx, r.scope, func(object *metav1.PartialObjectMetadata) error {
		if n := r.namespaces[object.Namespace]; n != nil {
			n.AddServiceAccount(object)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := FindInjected(ctx, r.CLI, r.scope, r.namespaces); err != nil && !r.lacks(err, "pods whose ServiceAccount asks for no identity any more") {
		return fmt.Errorf("list pods: %w", err)
	}
	maps.DeleteFunc(r.namespaces, func(_ string, n *Namespace) bool { return n.Empty() })
	progress, total := r.Periodically(), len(r.namespaces)
	for i, name := range slices.Sorted(maps.Keys(r.namespaces)) {
		progress("%d of %d namespaces ...", i, total)
		rows, err := r.rows(ctx, r.namespaces[name])
		if err != nil {
			return err
		}
		delete(r.namespaces, name) // with its pods
		clear(r.objects)
		if err := do(rows, r.missing); err != nil {
			return err
		}
		r.missing = nil
	}
	if f := r.configMaps.Finding(); f.Text != "" {
		r.missing = append(r.missing, f)
	}
	return do(nil, r.missing)
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
		Text: fmt.Sprintf("the variables of %s were not read: one run reads at most %d", texts.Count(c.Unread, "ConfigMap"), maxConfigMaps),
		Fix:  "To read them, look at one namespace or one workload.",
	}
}

// ReadPods adds the pods of the namespace that the selector selects, and works out their states.
func (n *Namespace) ReadPods(ctx context.Context, client kubernetes.Interface, selector string, limit *ConfigMapLimit) error {
	defer clear(n.comparers) // a large cluster has very many
	list := func(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
		options.LabelSelector = selector
		return client.CoreV1().Pods(n.Name).List(ctx, options)
	}
	if err := command.EachObject(ctx, list, n.addPod); err != nil {
		return err
	}
	for _, name := range n.configMaps() {
		if limit.read == maxConfigMaps {
			limit.Unread++
			continue
		}
		limit.read++
		_ = n.readConfigMap(ctx, client, name) // without it, a pod is current as far as can be seen
	}
	return n.settle()
}

// readConfigMap reads the relevant variables of a ConfigMap, once.
func (n *Namespace) readConfigMap(ctx context.Context, client kubernetes.Interface, name string) error {
	if n.variables[name] != nil {
		return nil
	}
	configMap, err := client.CoreV1().ConfigMaps(n.Name).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		configMap = new(corev1.ConfigMap)
	}
	n.variables.add(n.Settings, name, configMap.Data)
	return err
}

// rows reads the pods of a namespace and their owners, asks for the credentials of new
// pods, and returns the rows.
func (r *reader) rows(ctx context.Context, n *Namespace) ([]Row, error) {
	if err := n.ReadPods(ctx, r.typed, r.selector, &r.configMaps); r.lacks(err, "the pods of the namespace, which are not counted") {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for kinds := n.unreadOwners(); len(kinds) > 0; kinds = n.unreadOwners() {
		for i := range kinds {
			kind := &kinds[i]
			err := command.EachObject(ctx, r.metadata.Resource(kind.Resource).Namespace(n.Name).List, func(object *metav1.PartialObjectMetadata) error {
				n.addOwner(kind, object)
				return nil
			})
			if err != nil && !r.lacks(err, "the pods with an owner of the kind "+kind.Kind+", which are listed by their own names") {
				return nil, fmt.Errorf("list %s: %w", kind.Resource.Resource, err)
			}
		}
	}
	if len(r.names) > 0 {
		n.choose(r.names)
	}
	if err := r.ask(ctx, n); err != nil {
		return nil, err
	}
	rows := n.Rows()
	if r.selector != "" { // which selects pods
		rows = slices.DeleteFunc(rows, func(row Row) bool { return row.Pods == 0 })
	}
	for i := range rows {
		if err := r.readWorkload(ctx, &rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// readWorkload finds out whether a restart replaces the outdated pods of a workload.
func (r *reader) readWorkload(ctx context.Context, row *Row) error {
	if row.Outdated() == 0 || !row.owner.restarts() {
		return nil
	}
	_, name, _ := strings.Cut(row.Workload, "/")
	read, err := r.get(ctx, row.owner.Kind.Resource, row.Namespace, name)
	switch {
	case err == nil:
		row.owner = topOwnerOf(row.Workload, read)
	case !apierrors.IsNotFound(err) && !r.lacks(err, "whether a restart replaces the pods of "+row.Workload):
		return fmt.Errorf("%s: %w", row.Workload, err)
	}
	return nil
}

// get reads an object, once.
func (r *reader) get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	id := objectID{resource, namespace, name}
	read, known := r.objects[id]
	if !known {
		read.Unstructured, read.err = r.untyped.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		r.objects[id] = read
	}
	return read.Unstructured, read.err
}

// ask asks the API server about the pods that seem to differ from a new pod.
func (r *reader) ask(ctx context.Context, n *Namespace) error {
	var group errgroup.Group
	group.SetLimit(dryRunsAtOnce)
	for _, q := range n.questions() {
		if err := r.readTemplate(ctx, n, q); err != nil {
			return err
		}
		pod, err := q.pod()
		if err != nil {
			return err
		}
		if r.known != nil && q.template != nil && q.pods[0].owner.UID == r.known.owner {
			if err := q.answered(r.known.answer); err != nil {
				return err
			}
			continue
		}
		group.Go(func() error {
			answer := r.asker.Ask(ctx, &n.ObjectMeta, n.serviceAccount(q.pods[0].serviceAccount), pod)
			return q.answered(&answer)
		})
	}
	return group.Wait()
}

// readTemplate reads the pod template that the question is about, if there is one. Users can write
// owner references, so the reference may be wrong.
func (r *reader) readTemplate(ctx context.Context, n *Namespace, q *question) error {
	reference := q.pods[0].owner
	if reference == nil {
		return nil
	}
	kind, isKnown := cluster.ByOwner(reference)
	if !isKnown {
		return nil
	}
	object, err := r.get(ctx, kind.Resource, n.Name, reference.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && object.GetUID() != reference.UID, r.lacks(err, "what the containers of "+kind.Name(reference.Name)+" set themselves"):
		return nil
	case err != nil:
		return err
	}
	if q.template, err = cluster.PodOf(object); err != nil {
		return fmt.Errorf("%s: %w", kind.Name(reference.Name), err)
	}
	q.template.SetNamespace("")
	return nil
}
