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
	// short is the other name that kubectl accepts, such as deploy.
	short string
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
	in := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	}
	return []Kind{
		{Kind: "Pod", Resource: in("", "pods"), short: "po"},
		{Kind: "PodTemplate", Resource: in("", "podtemplates"), Template: []string{"template"}},
		{Kind: "ReplicationController", Resource: in("", "replicationcontrollers"), short: "rc", Template: specTemplate},
		{Kind: "Deployment", Resource: in("apps", "deployments"), short: "deploy", Template: specTemplate, Restarts: true},
		{Kind: "StatefulSet", Resource: in("apps", "statefulsets"), short: "sts", Template: specTemplate, Restarts: true},
		{Kind: "DaemonSet", Resource: in("apps", "daemonsets"), short: "ds", Template: specTemplate, Restarts: true},
		{Kind: "ReplicaSet", Resource: in("apps", "replicasets"), short: "rs", Template: specTemplate},
		{Kind: "Job", Resource: in("batch", "jobs"), Template: specTemplate},
		{Kind: "CronJob", Resource: in("batch", "cronjobs"), short: "cj", Template: []string{"spec", "jobTemplate", "spec", "template"}},
	}
}

// find returns the first kind that is wanted.
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

// ByGroupKind returns the kind of an object. The version does not matter: the pod
// template has been in the same place in all of them.
func ByGroupKind(kind schema.GroupKind) (Kind, bool) {
	return find(func(k *Kind) bool { return k.Kind == kind.Kind && k.Resource.Group == kind.Group })
}

// ByOwner returns the kind of an owner.
func ByOwner(owner *metav1.OwnerReference) (Kind, bool) {
	return ByGroupKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind())
}

// Name returns how users write the kind and a name: deployment/web.
func (k *Kind) Name(name string) string { return strings.ToLower(k.Kind) + "/" + name }

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

// Rollout is how far the pods of a workload follow its template.
type Rollout struct {
	// Done reports whether all pods do, and are available.
	Done bool
	// Progress describes the missing replicas, for people.
	Progress string
	// Failed is why the rollout will not be done, empty if it may be.
	Failed string
}

// Rollout reads the status of a Deployment, StatefulSet or DaemonSet. k8s.io/kubectl has the
// same in polymorphichelpers, which would add eight modules and 1 MB to the program.
func (k *Kind) Rollout(object *unstructured.Unstructured) Rollout {
	number := func(missing int64, path ...string) int64 {
		if n, found, err := unstructured.NestedInt64(object.Object, path...); found && err == nil {
			return n
		}
		return missing
	}
	if number(0, "status", "observedGeneration") < object.GetGeneration() {
		return Rollout{Progress: "waiting for its controller"}
	}
	var want, updated, all, available int64
	switch k.Kind {
	case "DaemonSet":
		want = number(0, "status", "desiredNumberScheduled")
		updated, all, available = number(0, "status", "updatedNumberScheduled"), want, number(0, "status", "numberAvailable")
	case "StatefulSet":
		want = number(1, "spec", "replicas")
		// Pods below the partition keep the previous template.
		want -= min(want, number(0, "spec", "updateStrategy", "rollingUpdate", "partition"))
		updated, all = number(0, "status", "updatedReplicas"), want
		available = number(0, "status", "availableReplicas")
	default:
		if reason, failed := progressFailed(object); failed {
			return Rollout{Failed: reason}
		}
		want = number(1, "spec", "replicas")
		updated, all = number(0, "status", "updatedReplicas"), number(0, "status", "replicas")
		available = number(0, "status", "availableReplicas")
	}
	switch {
	case updated < want:
		return Rollout{Progress: fmt.Sprintf("%d of %d pods are new", updated, want)}
	case all > updated:
		return Rollout{Progress: fmt.Sprintf("%d old pods are left", all-updated)}
	case available < want:
		return Rollout{Progress: fmt.Sprintf("%d of %d pods are available", available, want)}
	}
	return Rollout{Done: true}
}

// progressFailed reports whether a Deployment did not progress in time.
func progressFailed(object *unstructured.Unstructured) (reason string, failed bool) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		if condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded" {
			message, _ := condition["message"].(string)
			return message, true
		}
	}
	return "", false
}

// ByHand returns why a change of the template would not replace the pods, so that
// somebody must; empty if it would.
func (k *Kind) ByHand(object *unstructured.Unstructured) string {
	if k.Kind == "Pod" {
		return "nothing replaces it: delete it, and create it again"
	}
	if !k.Restarts {
		return "its pods are not replaced when its template changes"
	}
	if paused, _, _ := unstructured.NestedBool(object.Object, "spec", "paused"); paused {
		return "it is paused"
	}
	for _, field := range []string{"updateStrategy", "strategy"} {
		if kind, _, _ := unstructured.NestedString(object.Object, "spec", field, "type"); kind == "OnDelete" {
			return "its update strategy is OnDelete: delete its pods"
		}
	}
	return ""
}
