// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/check"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
)

// reader reads the objects of an explanation and asks for new pods. If the user lacks a right,
// the explanation goes on without the object.
type reader struct {
	*command.CLI
	typed   kubernetes.Interface
	untyped dynamic.Interface
	in      *Input
	// mutating is the registration of Lanyard; nil if the user may not read it.
	mutating *admissionregistrationv1.MutatingWebhookConfiguration
}

// explainObject reads the objects, sends the dry runs, and explains the results.
func explainObject(ctx context.Context, c *command.CLI, reference *command.Reference) (*Explanation, error) {
	defer c.Progress("asking Lanyard")()
	s, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	namespace, err := c.Namespace()
	if err != nil {
		return nil, err
	}
	r := &reader{CLI: c, in: &Input{Settings: s, Object: reference.String(), Unread: c.Webhook.Unread}}
	if r.typed, r.untyped, err = c.Clients(); err != nil {
		return nil, err
	}
	if err := r.namespace(ctx, namespace); err != nil {
		return nil, err
	}
	pod, err := r.template(ctx, reference)
	if err != nil {
		return nil, err
	}
	if err := r.serviceAccount(ctx, reference.IsServiceAccount()); err != nil {
		return nil, err
	}
	if err := r.registration(ctx); err != nil {
		return nil, err
	}
	if err := r.ask(ctx, pod); err != nil {
		return nil, err
	}
	return Explain(r.in), nil
}

// lacks reports whether the user lacks the right that a request needs, and notes the right. It
// is for reading requests, which the API server denies for no other reason.
func (r *reader) lacks(err error, purpose, verb, group, resource, namespace string) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	r.in.Missing = append(r.in.Missing, Missing{ask.Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace}, purpose})
	return true
}

// namespace reads the Namespace.
func (r *reader) namespace(ctx context.Context, name string) error {
	r.in.Namespace = &metav1.ObjectMeta{Name: name}
	object, err := r.typed.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		r.in.Namespace = &object.ObjectMeta
	case !r.lacks(err, "the label and the policy of the namespace", "get", "", "namespaces", name):
		return fmt.Errorf("namespace %s: %w", name, err)
	}
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
	case !r.lacks(err, "the identities of the ServiceAccount", "get", "", "serviceaccounts", namespace):
		return fmt.Errorf("serviceaccount %s/%s: %w", namespace, name, err)
	}
	return nil
}

// template returns the pod to ask about, and fills in the name of the ServiceAccount, the live
// pod and its owner.
func (r *reader) template(ctx context.Context, reference *command.Reference) (*unstructured.Unstructured, error) {
	if reference.IsServiceAccount() {
		r.in.ServiceAccountName = reference.Name
		pod := r.ProbePod(reference.Name)
		unstructured.RemoveNestedField(pod.Object, "metadata", "labels", r.in.Keys.Probe) // as any other pod
		return pod, nil
	}
	object, err := r.get(ctx, &reference.Kind, reference.Name)
	if err != nil {
		return nil, fmt.Errorf("%s in the namespace %s: %w", reference, r.in.Namespace.Name, err)
	}
	r.in.ServiceAccountName = reference.Kind.ServiceAccount(object)
	if len(reference.Kind.Template) > 0 {
		return reference.Kind.Pod(object)
	}
	r.in.Live = &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, r.in.Live); err != nil {
		return nil, fmt.Errorf("%s: %w", reference, err)
	}
	return r.owner(ctx, object)
}

// get reads an object of the namespace.
func (r *reader) get(ctx context.Context, kind *cluster.Kind, name string) (*unstructured.Unstructured, error) {
	return r.untyped.Resource(kind.Resource).Namespace(r.in.Namespace.Name).Get(ctx, name, metav1.GetOptions{})
}

// owner returns the pod that the owner of a pod makes, and fills in the owner at the top. If
// the owner has no template, or cannot be read, the pod is its own template.
func (r *reader) owner(ctx context.Context, pod *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var template *unstructured.Unstructured
	for reference := metav1.GetControllerOf(pod); reference != nil; {
		kind, known := cluster.ByOwner(reference)
		known = known && len(kind.Template) > 0
		var object *unstructured.Unstructured
		if known {
			var err error
			object, err = r.get(ctx, &kind, reference.Name)
			switch {
			case apierrors.IsNotFound(err) || err == nil && object.GetUID() != reference.UID:
				reference = nil // the reference is wrong, so the owner before it is at the top
				continue
			case r.lacks(err, "the workload of the pod", "get", kind.Resource.Group, kind.Resource.Resource, r.in.Namespace.Name):
			case err != nil:
				return nil, fmt.Errorf("%s, an owner of pod/%s: %w", kind.Name(reference.Name), pod.GetName(), err)
			}
		} else {
			kind = cluster.Kind{}
		}
		r.in.Owner = Owner{Name: cluster.NameOf(reference), Kind: kind}
		if object == nil {
			break
		}
		if template == nil {
			template = object
		}
		r.in.Owner.ByHand = kind.ByHand(object)
		reference = metav1.GetControllerOf(object)
	}
	if template == nil {
		return original(pod, r.in.Keys)
	}
	kind, _ := cluster.ByGroupKind(template.GroupVersionKind().GroupKind())
	return kind.Pod(template)
}

// original returns a running pod as it was before Lanyard changed it, as far as the pod
// shows that.
func original(pod *unstructured.Unstructured, keys *annotations.Keys) (*unstructured.Unstructured, error) {
	pod = pod.DeepCopy()
	if err := injected.Remove(pod.Object, keys); err != nil {
		return nil, err
	}
	name, given, values := pod.GetName(), pod.GetLabels(), pod.GetAnnotations()
	pod.Object["metadata"] = map[string]any{}
	pod.SetGenerateName(name + "-")
	pod.SetLabels(given)
	pod.SetAnnotations(values)
	delete(pod.Object, "status")
	unstructured.RemoveNestedField(pod.Object, "spec", "ephemeralContainers")
	return pod, nil
}

// registration fills in whether Lanyard is called for the namespace, and whether the guard is
// in place.
func (r *reader) registration(ctx context.Context) (err error) {
	const group = admissionregistrationv1.GroupName
	r.mutating, err = r.Installation(ctx, r.typed)
	if err != nil && !r.lacks(err, "the namespaces that Lanyard is called for, and the guard", "list", group, "mutatingwebhookconfigurations", "") {
		return err
	}
	if r.in.Called, err = cluster.CalledFor(r.mutating, r.in.Settings, r.in.Namespace); err != nil {
		return err
	}
	r.in.GuardProblem = "its policy was not read"
	if r.mutating == nil {
		return nil
	}
	name, api := cluster.GuardPolicy(r.mutating), r.typed.AdmissionregistrationV1()
	policies := &check.Policies{Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}
	policy, err := api.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		policies.Policies[name] = policy
	case apierrors.IsNotFound(err):
	case r.lacks(err, "the guard", "get", group, "validatingadmissionpolicies", ""):
		return nil
	default:
		return fmt.Errorf("validatingadmissionpolicy %s: %w", name, err)
	}
	bindings, err := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	switch {
	case err == nil:
		policies.Bindings = bindings.Items
	case apierrors.IsNotFound(err): // the API is missing before Kubernetes 1.30
	case r.lacks(err, "the guard", "list", group, "validatingadmissionpolicybindings", ""):
		return nil
	default:
		return fmt.Errorf("list validatingadmissionpolicybindings: %w", err)
	}
	r.in.GuardProblem = policies.Denies(name)
	return nil
}

// ask asks for the credentials of a new pod. If the answer of the cluster is inconclusive, it
// asks about a second pod, with the label of the probe.
func (r *reader) ask(ctx context.Context, pod *unstructured.Unstructured) error {
	in := r.in
	pod.SetNamespace("")
	in.Sent = &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod.Object, in.Sent); err != nil {
		return fmt.Errorf("pod template of %s: %w", in.Object, err)
	}
	if in.Absent {
		return nil // the API server denies the pod
	}
	config, err := r.Config()
	if err != nil {
		return err
	}
	asker, err := ask.New(config, in.Settings, ask.Options{Registration: r.mutating})
	if err != nil {
		return err
	}
	in.Answer = asker.Ask(ctx, in.Namespace, in.ServiceAccount, pod)
	if in.Answer.Missing != nil {
		in.Missing = append(in.Missing, Missing{*in.Answer.Missing, "the dry run of a pod"})
	}
	if in.Answer.Pod != nil {
		in.Got = &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(in.Answer.Pod.Object, in.Got); err != nil {
			return fmt.Errorf("dry run of %s: %w", in.Object, err)
		}
		if in.Got.Annotations[in.Keys.Injected] != "" || !in.asks() {
			return nil
		}
	}
	if in.Called && !in.Answer.Local && in.Answer.Err == nil {
		answer := asker.Ask(ctx, in.Namespace, in.ServiceAccount, r.ProbePod(in.ServiceAccountName))
		in.Probe = &answer
	}
	return nil
}
