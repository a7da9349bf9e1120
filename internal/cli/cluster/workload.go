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

// NameOf returns how users write an owner: deployment/web.
func NameOf(owner *metav1.OwnerReference) string {
	return strings.ToLower(owner.Kind) + "/" + owner.Name
}

// Pod returns the pod that the object makes, or the object itself if it is a pod.
// It is a copy, with the object's namespace, and with a name only if it is a pod.
func (k *Kind) Pod(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(k.Template) == 0 {
		return object.DeepCopy(), nil
	}
	template, found, err := unstructured.NestedMap(object.Object, k.Template...)
	if err != nil || !found {
		return nil, fmt.Errorf("%s: %s: got none, want a pod template", k.Name(object.GetName()), strings.Join(k.Template, "."))
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

// ServiceAccount returns the name of the ServiceAccount that the pods of the object
// use.
func (k *Kind) ServiceAccount(object *unstructured.Unstructured) string {
	path := append(slices.Clone(k.Template), "spec")
	// The API server copies the deprecated name of the field to the other field.
	name, _, _ := unstructured.NestedString(object.Object, append(path, "serviceAccountName")...)
	deprecated, _, _ := unstructured.NestedString(object.Object, append(path, "serviceAccount")...)
	return cmp.Or(name, deprecated, DefaultServiceAccount)
}
