// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DefaultServiceAccount is the ServiceAccount of pods that name none.
const DefaultServiceAccount = "default"

// Kind is a kind of object that is a pod or makes pods.
type Kind struct {
	// Kind is the name in manifests, such as Deployment.
	Kind string
	// Resource is where the API serves it.
	Resource schema.GroupVersionResource
	// Short are the other names that kubectl accepts, such as deploy.
	Short []string
	// Template is the path of the pod template in the object. It is empty for a pod,
	// which is its own template.
	Template []string
	// Restarts reports whether a change of the template replaces the pods. It is false
	// for kinds whose pods stay as they are, such as a Job.
	Restarts bool
}

var specTemplate = []string{"spec", "template"}

// Kinds returns all kinds.
func Kinds() []Kind {
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	apps := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
	}
	batch := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: resource}
	}
	return []Kind{
		{Kind: "Pod", Resource: core("pods"), Short: []string{"po"}},
		{Kind: "PodTemplate", Resource: core("podtemplates"), Template: []string{"template"}},
		{Kind: "ReplicationController", Resource: core("replicationcontrollers"), Short: []string{"rc"}, Template: specTemplate},
		{Kind: "Deployment", Resource: apps("deployments"), Short: []string{"deploy"}, Template: specTemplate, Restarts: true},
		{Kind: "StatefulSet", Resource: apps("statefulsets"), Short: []string{"sts"}, Template: specTemplate, Restarts: true},
		{Kind: "DaemonSet", Resource: apps("daemonsets"), Short: []string{"ds"}, Template: specTemplate, Restarts: true},
		{Kind: "ReplicaSet", Resource: apps("replicasets"), Short: []string{"rs"}, Template: specTemplate},
		{Kind: "Job", Resource: batch("jobs"), Template: specTemplate},
		{Kind: "CronJob", Resource: batch("cronjobs"), Short: []string{"cj"}, Template: []string{"spec", "jobTemplate", "spec", "template"}},
	}
}

// ByName returns the kind that a user means: by its kind, the name of its resource,
// with or without the group, or a short name, in any case.
func ByName(name string) (Kind, bool) {
	name, group, _ := strings.Cut(strings.ToLower(name), ".")
	for _, k := range Kinds() {
		if group != "" && group != k.Resource.Group {
			continue
		}
		if name == strings.ToLower(k.Kind) || name == k.Resource.Resource || slices.Contains(k.Short, name) {
			return k, true
		}
	}
	return Kind{}, false
}

// ByGroupKind returns the kind of an object. The version does not matter: the pod
// template has been in the same place in all of them.
func ByGroupKind(kind schema.GroupKind) (Kind, bool) {
	for _, k := range Kinds() {
		if kind.Kind == k.Kind && kind.Group == k.Resource.Group {
			return k, true
		}
	}
	return Kind{}, false
}

// ByOwner returns the kind of an owner.
func ByOwner(owner *metav1.OwnerReference) (Kind, bool) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return Kind{}, false
	}
	return ByGroupKind(schema.GroupKind{Group: version.Group, Kind: owner.Kind})
}

// Name returns how users write the kind and a name: deployment/web.
func (k *Kind) Name(name string) string { return strings.ToLower(k.Kind) + "/" + name }

// Pod is PodOf for an object of the kind.
func (k *Kind) Pod(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return PodOf(object)
}

// ServiceAccount is ServiceAccountOf for an object of the kind.
func (k *Kind) ServiceAccount(object *unstructured.Unstructured) string {
	return ServiceAccountOf(object)
}

// templatePaths are where objects have the template of their pods: nearly all kinds, also
// custom ones such as Rollout of Argo, then CronJob and PodTemplate.
var templatePaths = [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}, {"template"}}

// TemplatePath returns where an object has the template of its pods, and reports whether it
// has one. The path is empty for a pod, which is its own template. A template of a custom kind
// is a pod's if it has containers.
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

// PodOf returns the pod that the object makes, or the object itself if it is a pod.
// It is a copy, with the object's namespace, and with a name only if it is a pod.
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
	// The API server copies the deprecated name of the field to the other field.
	name, _, _ := unstructured.NestedString(object.Object, append(path, "serviceAccountName")...)
	deprecated, _, _ := unstructured.NestedString(object.Object, append(path, "serviceAccount")...)
	return cmp.Or(name, deprecated, DefaultServiceAccount)
}
