// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster reads the parts of a cluster that concern Lanyard: what is installed, for
// which namespaces and pods it is called, and the kinds that have pods.
//
//	survey.go        reads the installation, its policies and its settings
//	webhook.go       reads the Deployment of the webhook, and its options
//	installation.go  webhook configurations and their selectors; the kinds and their pod templates
//	policies.go      the policies of the guard, and those that inject
//	unchanged.go     when the annotations of a ServiceAccount were written
package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Names of the webhooks in the webhook configurations, besides probe.Webhook.
const (
	PodWebhook            = "pods.lanyard.dev"
	ServiceAccountWebhook = "serviceaccounts.lanyard.dev"
)

// Find returns the mutating webhook configurations of Lanyard, usually one.
func Find(all []admissionregistrationv1.MutatingWebhookConfiguration) []*admissionregistrationv1.MutatingWebhookConfiguration {
	var found []*admissionregistrationv1.MutatingWebhookConfiguration
	for i := range all {
		if Entry(&all[i], PodWebhook) != nil {
			found = append(found, &all[i])
		}
	}
	return found
}

// Names lists the names of configurations.
func Names(configurations []*admissionregistrationv1.MutatingWebhookConfiguration) string {
	var list []string
	for _, c := range configurations {
		list = append(list, c.Name)
	}
	return strings.Join(list, ", ")
}

// Entry returns the webhook of this name, or nil.
func Entry(configuration *admissionregistrationv1.MutatingWebhookConfiguration, name string) *admissionregistrationv1.MutatingWebhook {
	i := slices.IndexFunc(configuration.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == name })
	if i < 0 {
		return nil
	}
	return &configuration.Webhooks[i]
}

// Registered describes the webhook configuration of another program.
func Registered(configuration *admissionregistrationv1.MutatingWebhookConfiguration) peer.Registration {
	r := peer.Registration{Name: configuration.Name, Labels: configuration.Labels}
	for i := range configuration.Webhooks {
		w := &configuration.Webhooks[i]
		r.Webhooks = append(r.Webhooks, w.Name)
		r.Again = r.Again || w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
		if w.ClientConfig.Service != nil {
			r.Namespaces = append(r.Namespaces, w.ClientConfig.Service.Namespace)
		}
	}
	return r
}

// GuardPolicies returns the names of the guard's policies.
func GuardPolicies(configuration *admissionregistrationv1.MutatingWebhookConfiguration) []string {
	return []string{configuration.Name + GuardPods, configuration.Name + GuardInjected}
}

// Unguarded reports whether a ServiceAccount needs credentials but is not guarded, because it
// lacks the label or an identity was not adopted yet.
func Unguarded(s *annotations.Settings, serviceAccount *metav1.PartialObjectMetadata) bool {
	labelled := annotations.IsGuarded(serviceAccount.Labels[annotations.IdentityLabel])
	return !labelled && s.AskForIdentity(serviceAccount.Annotations) || peer.Adoptable(s, peer.Of(s), serviceAccount.Annotations)
}

// Guard says whether a ServiceAccount that asks for an identity is guarded.
type Guard string

const (
	// GuardOn means that the ServiceAccount has the label that the guard selects.
	GuardOn Guard = "guarded"
	// GuardOff means that it lacks the label, or that an identity was not adopted from
	// another webhook's annotations yet.
	GuardOff Guard = "unguarded"
	// GuardExcluded means that Lanyard is not called for its namespace.
	GuardExcluded Guard = "excluded"
)

// GuardOf returns whether a ServiceAccount is guarded. called reports whether Lanyard is
// called for its namespace.
func GuardOf(s *annotations.Settings, serviceAccount *metav1.PartialObjectMetadata, called bool) Guard {
	switch {
	case !called:
		return GuardExcluded
	case Unguarded(s, serviceAccount):
		return GuardOff
	}
	return GuardOn
}

// CalledFor reports whether Lanyard is called for the pods of a namespace, judging by the
// webhook configuration or, if that is nil, by the settings and the label of the namespace.
func CalledFor(configuration *admissionregistrationv1.MutatingWebhookConfiguration, s *annotations.Settings, namespace *metav1.ObjectMeta) bool {
	if configuration == nil {
		return !s.Excludes(namespace.Name, namespace.Labels[annotations.Inject])
	}
	entry := Entry(configuration, PodWebhook)
	if entry == nil || entry.NamespaceSelector == nil {
		return entry != nil
	}
	selector, err := metav1.LabelSelectorAsSelector(entry.NamespaceSelector)
	// The API server sets this label. It is missing in a namespace that was not read.
	set := labels.Merge(labels.Set{corev1.LabelMetadataName: namespace.Name}, namespace.Labels)
	return err == nil && selector.Matches(set) // the API server rejects invalid selectors
}

// mirrorCondition is the name of the matchCondition that all of Lanyard's pod webhooks have.
const mirrorCondition = "not-a-mirror-pod"

// Selects reports whether the webhook selects a pod with these labels. certain is false if
// there are additional matchConditions, which only the API server can evaluate.
func Selects(configuration *admissionregistrationv1.MutatingWebhookConfiguration, pod map[string]string) (selected, certain bool) {
	if configuration == nil {
		return true, true
	}
	entry := Entry(configuration, PodWebhook)
	if entry == nil {
		return false, true
	}
	certain = !slices.ContainsFunc(entry.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name != mirrorCondition })
	if entry.ObjectSelector == nil {
		return true, certain
	}
	selector, err := metav1.LabelSelectorAsSelector(entry.ObjectSelector)
	return err == nil && selector.Matches(labels.Set(pod)), certain
}

// DefaultServiceAccount is the ServiceAccount of pods that do not set one.
const DefaultServiceAccount = "default"

// Kind is a kind of object that is a pod or creates pods.
type Kind struct {
	// Kind is the name in manifests, such as Deployment.
	Kind string
	// Resource is the API resource.
	Resource schema.GroupVersionResource
	// short is the other name that kubectl accepts, such as deploy.
	short string
	// Restarts reports whether a change of the template replaces the pods. It is false for a
	// Job, for example.
	Restarts bool
	// Makes is the kind of the objects that it creates, if they are not pods.
	Makes string
}

// Kinds returns all kinds.
func Kinds() []Kind {
	in := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	}
	return []Kind{
		{Kind: "Pod", Resource: in("", "pods"), short: "po"},
		{Kind: "PodTemplate", Resource: in("", "podtemplates")},
		{Kind: "ReplicationController", Resource: in("", "replicationcontrollers"), short: "rc"},
		{Kind: "Deployment", Resource: in("apps", "deployments"), short: "deploy", Restarts: true, Makes: "ReplicaSet"},
		{Kind: "StatefulSet", Resource: in("apps", "statefulsets"), short: "sts", Restarts: true},
		{Kind: "DaemonSet", Resource: in("apps", "daemonsets"), short: "ds", Restarts: true},
		{Kind: "ReplicaSet", Resource: in("apps", "replicasets"), short: "rs"},
		{Kind: "Job", Resource: in("batch", "jobs")},
		{Kind: "CronJob", Resource: in("batch", "cronjobs"), short: "cj", Makes: "Job"},
	}
}

// find returns the first kind for which wanted is true.
func find(wanted func(k *Kind) bool) (Kind, bool) {
	for _, k := range Kinds() {
		if wanted(&k) {
			return k, true
		}
	}
	return Kind{}, false
}

// ByName returns the kind that a user means: by its kind, the name of its resource,
// with or without the group, or a short name, in any case.
func ByName(name string) (Kind, bool) {
	name, group, _ := strings.Cut(strings.ToLower(name), ".")
	return find(func(k *Kind) bool {
		named := name == strings.ToLower(k.Kind) || name == k.Resource.Resource || name != "" && name == k.short
		return named && (group == "" || group == k.Resource.Group)
	})
}

// ByGroupKind returns the kind of an object.
func ByGroupKind(kind schema.GroupKind) (Kind, bool) {
	return find(func(k *Kind) bool { return k.Kind == kind.Kind && k.Resource.Group == kind.Group })
}

// ByOwner returns the kind of an owner.
func ByOwner(owner *metav1.OwnerReference) (Kind, bool) {
	return ByGroupKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind())
}

// ControllerOf returns the owner that created an object of this kind, or nil if there is none. The
// creator of an object can write any owner reference. One to a kind of Kubernetes that does not
// create such objects is wrong, but no controller removes it.
func ControllerOf(kind string, object metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return nil
	}
	if k, known := ByName(owner.Kind); known && cmp.Or(k.Makes, "Pod") != kind {
		return nil
	}
	return owner
}

// Name formats the kind and a name, as in deployment/web.
func (k *Kind) Name(name string) string { return strings.ToLower(k.Kind) + "/" + name }

// templatePaths are the paths of pod templates: first that of nearly all kinds, including
// custom ones such as Argo's Rollout, then those of CronJob and PodTemplate.
var templatePaths = [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}, {"template"}}

// TemplatePath returns the path of the pod template in an object, and reports whether there
// is one. The path is empty for a pod, which is its own template. In a custom kind, a
// template counts if it has containers.
func TemplatePath(object *unstructured.Unstructured) (path []string, found bool) {
	if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
		return nil, true
	}
	builtin := slices.Contains([]string{"", "apps", "batch"}, object.GroupVersionKind().Group)
	for _, path := range templatePaths {
		field, _, _ := unstructured.NestedFieldNoCopy(object.Object, append(slices.Clone(path), "spec")...)
		spec, _ := field.(map[string]any)
		_, isPod := spec["containers"].([]any)
		if isPod || builtin && spec != nil {
			return path, true
		}
	}
	return nil, false
}

// PodOf returns a copy of the pod that the object would create, or of the object if it is a
// pod, with the object's namespace. Only a copy of a pod has a name.
func PodOf(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	path, found := TemplatePath(object)
	switch {
	case !found:
		return nil, fmt.Errorf("%s/%s has no pod template", strings.ToLower(object.GetKind()), object.GetName())
	case len(path) == 0:
		return object.DeepCopy(), nil
	}
	template, _, err := unstructured.NestedMap(object.Object, path...)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", strings.ToLower(object.GetKind()), object.GetName(), err)
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetNamespace(object.GetNamespace())
	pod.SetGenerateName(object.GetName() + "-")
	unstructured.RemoveNestedField(pod.Object, "metadata", "name")
	unstructured.RemoveNestedField(pod.Object, "metadata", "creationTimestamp")
	return pod, nil
}

// ServiceAccountOf returns the name of the ServiceAccount that the pods of the object use.
func ServiceAccountOf(object *unstructured.Unstructured) string {
	path, _ := TemplatePath(object)
	path = append(slices.Clone(path), "spec")
	// The API server copies the deprecated field to the current one.
	name, _, _ := unstructured.NestedString(object.Object, append(path, "serviceAccountName")...)
	deprecated, _, _ := unstructured.NestedString(object.Object, append(path, "serviceAccount")...)
	return cmp.Or(name, deprecated, DefaultServiceAccount)
}

// OwnerName formats an owner as users write it, such as deployment/cart. It returns "" if no object
// can have such a name, because users can write owner references, and the result is printed in
// commands.
func OwnerName(owner *metav1.OwnerReference) string {
	kind := strings.ToLower(owner.Kind)
	if len(validation.IsDNS1123Label(kind))+len(validation.IsDNS1123Subdomain(owner.Name)) > 0 {
		return ""
	}
	return kind + "/" + owner.Name
}

// ByHand returns the reason why a change of the template would not replace the pods, or "" if it
// would.
func (k *Kind) ByHand(object *unstructured.Unstructured) string {
	if k.Kind == "Pod" {
		return "no controller replaces it: delete it, and create it again"
	}
	if !k.Restarts {
		return "its pods are not replaced when its template changes"
	}
	if paused, _, _ := unstructured.NestedBool(object.Object, "spec", "paused"); paused {
		return "it is paused"
	}
	for _, field := range []string{"updateStrategy", "strategy"} {
		if kind, _, _ := unstructured.NestedString(object.Object, "spec", field, "type"); kind == "OnDelete" {
			return "its update strategy is OnDelete"
		}
	}
	return ""
}
