// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// reader reads the objects of an explanation and asks for new pods. If the user lacks a right,
// the explanation goes on without the object.
type reader struct {
	*command.CLI
	typed   kubernetes.Interface
	untyped dynamic.Interface
	mapper  meta.RESTMapper
	in      *input
	// mutating is the registration of Lanyard, or nil if the user may not read it.
	mutating *admissionregistrationv1.MutatingWebhookConfiguration
	// unread is why the rules of the webhook cannot be evaluated here, or nil if they can.
	unread error
}

// explainObject reads the objects, sends the dry runs, and explains the results.
func explainObject(ctx context.Context, c *command.CLI, args []string) (*Explanation, error) {
	// The user may have no right to read the object.
	info, err := c.Object(&command.Selection{NamesOnly: true}, args)
	if err != nil {
		return nil, err
	}
	if info.Namespace == "" {
		return nil, command.Usagef("%s has no namespace: name a ServiceAccount, a pod or a workload", command.NameOf(info))
	}
	defer c.Progress("asking Lanyard")()
	s, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	r := &reader{CLI: c, unread: c.Webhook.Unread, in: &input{Settings: s, Object: command.NameOf(info)}}
	if r.typed, r.untyped, err = c.Clients(); err != nil {
		return nil, err
	}
	if r.mapper, err = c.Flags.ToRESTMapper(); err != nil {
		return nil, err
	}
	if err := r.namespace(ctx, info.Namespace); err != nil {
		return nil, err
	}
	r.in.Named = true
	isServiceAccount := info.Mapping.Resource == command.CoreResource("serviceaccounts")
	var pod *unstructured.Unstructured
	if isServiceAccount {
		r.in.ServiceAccountName = info.Name
		pod = r.ProbePod(info.Name)
		unstructured.RemoveNestedField(pod.Object, "metadata", "labels", annotations.Probe) // as any other pod
	} else if pod, err = r.template(ctx, info); err != nil {
		return nil, err
	}
	if err := r.serviceAccount(ctx, isServiceAccount); err != nil {
		return nil, err
	}
	if pod == nil {
		if pod, err = r.original(); err != nil {
			return nil, err
		}
	}
	if err := r.registration(ctx); err != nil {
		return nil, err
	}
	if err := r.variables(ctx, pod); err != nil {
		return nil, err
	}
	if r.in.ServiceAccount != nil && !r.in.asks() {
		r.askers(ctx)
	}
	if err := r.ask(ctx, pod); err != nil {
		return nil, err
	}
	explanation, known := explain(r.in), len(r.in.Missing)
	if explanation.event, err = r.event(ctx, info, &explanation.New); explanation.event != nil {
		explanation.Findings = append(explanation.Findings, *explanation.event)
	}
	if err == nil && r.in.Live == nil && r.in.asks() {
		r.pods(ctx, explanation)
	}
	explanation.Findings = append(explanation.Findings, r.in.Missing[known:]...)
	return explanation, err
}

// What the user lacks a right for.
const (
	aboutNamespace = "the label and the policy of the namespace"
	aboutDryRun    = "the dry run of a pod"
)

// lacks reports whether a request for reading failed because the user lacks a right, and notes
// the right. purpose is the part of the explanation that needs the right.
func (r *reader) lacks(err error, purpose string) bool {
	right := finding.LackedRight(err)
	if right != "" {
		f := finding.NoRight(right, "%s", purpose)
		f.About = purpose
		r.in.Missing = append(r.in.Missing, f)
	}
	return right != ""
}

// namespace reads the Namespace. Its policy is one of the rules of the webhook.
func (r *reader) namespace(ctx context.Context, name string) error {
	list, err := command.Namespaces(ctx, r.typed, name)
	if r.in.Namespace = list[0]; err != nil && !r.lacks(err, aboutNamespace) {
		return err
	}
	r.unread = cmp.Or(r.unread, err)
	return nil
}

// serviceAccount reads the ServiceAccount. It must exist if the user asked about it.
func (r *reader) serviceAccount(ctx context.Context, asked bool) error {
	namespace, name := r.in.Namespace.Name, r.in.ServiceAccountName
	object, err := r.typed.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		r.in.ServiceAccount = &object.ObjectMeta
		r.NoteUnknown(object)
	case apierrors.IsNotFound(err) && !asked:
		r.in.Absent = true
	case !r.lacks(err, "the identities of the ServiceAccount"):
		return fmt.Errorf("serviceaccount %s/%s: %w", namespace, name, err)
	}
	return nil
}

// template reads an object that makes pods. It returns the pod to ask about, or nil if that is the
// live pod, and fills in the name of the ServiceAccount, the live pod and its owner.
func (r *reader) template(ctx context.Context, info *resource.Info) (*unstructured.Unstructured, error) {
	object, err := r.get(ctx, info.Mapping.Resource, info.Name)
	if err != nil {
		return nil, fmt.Errorf("%s in the namespace %s: %w", r.in.Object, info.Namespace, err)
	}
	path, found := cluster.TemplatePath(object)
	if !found {
		return nil, command.Usagef("%s makes no pods: name a ServiceAccount, a pod or a workload such as a deployment", r.in.Object)
	}
	r.in.ServiceAccountName, r.in.Named = cluster.ServiceAccountOf(object), cluster.NamesServiceAccount(object)
	if len(path) > 0 {
		r.in.Owner = ownerOfPods(r.in.Object, object)
		if !r.in.Owner.Kind.Restarts {
			if _, err := r.owner(ctx, object); err != nil {
				return nil, err
			}
		}
		return cluster.PodOf(object)
	}
	r.in.Live = object
	owner, err := r.owner(ctx, object)
	if err != nil || owner == nil {
		return nil, err
	}
	return cluster.PodOf(owner)
}

// original returns the live pod without its injected credentials.
func (r *reader) original() (*unstructured.Unstructured, error) {
	text, err := json.Marshal(r.in.Live)
	if err != nil {
		return nil, err
	}
	verdict, err := r.in.running()
	if err != nil {
		return nil, err
	}
	return Original(text, r.in.Settings, cluster.IsUnchanged(r.in.Live, r.in.since()), verdict.Decision)
}

// get reads an object of the namespace.
func (r *reader) get(ctx context.Context, kind schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	return r.untyped.Resource(kind).Namespace(r.in.Namespace.Name).Get(ctx, name, metav1.GetOptions{})
}

// owner returns the owner of a pod or a workload if it has a template, and fills in the owner at the
// top. It returns nil if a pod is its own template, because there is no owner or it cannot be read.
func (r *reader) owner(ctx context.Context, owned *unstructured.Unstructured) (template *unstructured.Unstructured, err error) {
	reference := cluster.ControllerOf(owned.GetKind(), owned)
	for n := 0; reference != nil && n < maxOwners; n++ { // users can write references in a circle
		object, err := r.ownerOf(ctx, reference)
		name := cluster.OwnerName(reference)
		if name == "" || apierrors.IsNotFound(err) || err == nil && object != nil && object.GetUID() != reference.UID {
			break // the reference is wrong, so the owner below is at the top
		}
		if err != nil {
			return nil, fmt.Errorf("%s, an owner of %s: %w", name, r.in.Object, err)
		}
		if object == nil {
			kind, _ := cluster.ByOwner(reference)
			r.in.Owner = topOwner{Name: name, Kind: kind}
			break
		}
		r.in.Owner = ownerOfPods(name, object)
		if _, found := cluster.TemplatePath(object); found && template == nil {
			template = object
		}
		reference = cluster.ControllerOf(object.GetKind(), object)
	}
	return template, nil
}

// ownerOf reads an owner. It returns nil for an owner without a namespace, such as the node of
// a mirror pod, for a kind that the API server does not know, for a Secret, and without the right.
func (r *reader) ownerOf(ctx context.Context, reference *metav1.OwnerReference) (*unstructured.Unstructured, error) {
	kind := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind)
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace || mapping.Resource == command.CoreResource("secrets") {
		return nil, nil //nolint:nilerr // who creates a pod writes its references
	}
	object, err := r.get(ctx, mapping.Resource, reference.Name)
	if r.lacks(err, "the workload of the pod") {
		return nil, nil
	}
	return object, err
}

// registration fills in whether Lanyard is called for the namespace, and whether the guard is
// in place.
func (r *reader) registration(ctx context.Context) error {
	parts, err := r.Survey()
	if err != nil {
		return err
	}
	installation, err := parts.Installation(ctx)
	if err != nil && !r.lacks(err, "the namespaces that Lanyard is called for, and the guard") {
		return err
	}
	r.mutating, r.in.Installation = installation.Registration(), installation
	r.in.Called, r.in.Registration = cluster.CalledFor(r.mutating, r.in.Settings, r.in.Namespace), r.mutating
	if r.in.GuardProblem = "its policy was not read"; installation == nil {
		return nil
	}
	if r.in.Leftovers, err = parts.Leftovers(ctx); err != nil && !r.lacks(err, "the policies of an earlier installation") {
		return err
	}
	if installation.Absent() {
		return nil
	}
	problem, err := parts.Guard(ctx, r.mutating)
	switch {
	case err == nil:
		r.in.GuardProblem, r.in.NoGuard = problem, problem != ""
	case !r.lacks(err, "the guard"):
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

// variables reads the ConfigMaps that containers take variables from, as far as they can be read.
func (r *reader) variables(ctx context.Context, pod *unstructured.Unstructured) error {
	text, err := json.Marshal(pod.Object)
	if err != nil {
		return err
	}
	configMaps, secrets, err := sourcesOf(text)
	if err != nil { // a custom kind has a mistake in its template
		return nil //nolint:nilerr // the API server says what it is
	}
	r.in.ConfigMaps = ConfigMaps{}
	if r.in.Secrets = secrets; !r.in.asks() {
		r.in.Secrets = nil
	}
	for _, name := range configMaps {
		configMap, err := r.typed.CoreV1().ConfigMaps(r.in.Namespace.Name).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			r.in.ConfigMaps.Add(r.in.Settings, name, configMap.Data)
		} else if !apierrors.IsNotFound(err) && !r.lacks(err, "the variables in the ConfigMap "+name) {
			return fmt.Errorf("configmap %s: %w", name, err)
		}
	}
	return nil
}

// maxAskers is how many ServiceAccounts are enough for a hint.
const maxAskers = 5

// askers looks for ServiceAccounts that ask for an identity, in the namespace, and by the same name
// elsewhere. A user who may not list them gets no hint.
func (r *reader) askers(ctx context.Context) {
	in := r.in
	accounts := r.typed.CoreV1().ServiceAccounts
	if list, err := accounts(in.Namespace.Name).List(ctx, metav1.ListOptions{Limit: maxListed}); err == nil {
		for i := range list.Items {
			if len(in.Askers) < maxAskers && in.AskForIdentity(list.Items[i].Annotations) {
				in.Askers = append(in.Askers, list.Items[i].Name)
			}
		}
	}
	if in.ServiceAccountName == cluster.DefaultServiceAccount { // which every namespace has
		return
	}
	if list, err := accounts(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: maxListed, FieldSelector: "metadata.name=" + in.ServiceAccountName}); err == nil {
		for i := range list.Items {
			if len(in.Elsewhere) < maxAskers && in.AskForIdentity(list.Items[i].Annotations) {
				in.Elsewhere = append(in.Elsewhere, list.Items[i].Namespace)
			}
		}
	}
}

// maxListed is how many ServiceAccounts are read for a hint.
const maxListed = 500

// ask asks for the credentials of a new pod. If the answer of the cluster is inconclusive, it
// asks about a second pod, with the label of the probe.
func (r *reader) ask(ctx context.Context, pod *unstructured.Unstructured) error {
	in := r.in
	pod.SetNamespace("")
	in.Unread = r.unread != nil
	if in.Sent = pod; in.Absent { // the API server denies the pod
		return nil
	}
	config, err := r.Config()
	if err != nil {
		return err
	}
	asker, err := NewAsker(config, in.Settings, Options{Registration: r.mutating, Unread: r.unread})
	if err != nil {
		return err
	}
	in.Answer = asker.Ask(ctx, in.Namespace, in.ServiceAccount, pod)
	if in.Answer.Missing != "" {
		in.Missing = append(in.Missing, finding.Finding{
			Status: finding.Skipped, About: aboutDryRun, Reason: finding.MissingRight, Text: aboutDryRun + ": you may not " + in.Answer.Missing,
			Fix: "Ask an administrator to bind the ClusterRole \"edit\" to you in the namespace " + in.Namespace.Name + ".",
		})
	}
	if in.Answer.Pod != nil {
		in.Got = in.Answer.Pod
		if in.Got.GetAnnotations()[annotations.Injected] != "" || !in.asks() {
			return nil
		}
	}
	if in.Called && in.Answer.Local == "" && in.Answer.Err == nil {
		answer := asker.Ask(ctx, in.Namespace, in.ServiceAccount, r.ProbePod(in.ServiceAccountName))
		in.Probe = &answer
	}
	return nil
}
