// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Object is the part of an object that a peer reads. A large cluster has very many objects, so nothing
// else is kept.
type Object struct {
	Kind, Namespace, Name string
	// Owned reports whether another object created it. The stock contains such an object only if
	// it is a pod that uses an agent.
	Owned bool
	// Source is the name of the object's file, if any.
	Source string
	// Labels and Annotations are those of a ServiceAccount.
	Labels, Annotations map[string]string
	// Pod is the pod template, or nil if the object makes no pods.
	Pod *Pod
	// Data is the data of a ConfigMap of a peer.
	Data map[string]string
	// Registration describes a webhook configuration.
	Registration peer.Registration

	// version is the resource version in a cluster.
	version string
}

// Pod is the part of a pod template, or of a pod, that a peer reads.
type Pod struct {
	PodMetadata `json:"metadata"`
	PodSpec     `json:"spec"`

	ServiceAccount string `json:"-"`
}

// PodMetadata is the metadata of a pod. It and PodSpec are exported, because the converter of
// apimachinery sets them even if they are absent, and panics if it cannot.
type PodMetadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// PodSpec is the spec of a pod.
type PodSpec struct {
	NodeSelector map[string]string `json:"nodeSelector"`
	Volumes      []Volume          `json:"volumes"`
	// Containers are the containers and init containers that have a variable that a peer reads, or run
	// the program of a peer.
	Containers     []Container `json:"containers"`
	InitContainers []Container `json:"initContainers"`
}

// Volume is a volume of a pod.
type Volume struct {
	Name string `json:"name"`
}

// Container is the part of a container that a peer reads.
type Container struct {
	Name    string     `json:"name"`
	Image   string     `json:"image"`
	Command []string   `json:"command"`
	Args    []string   `json:"args"`
	Env     []Variable `json:"env"`
}

// Variable is a variable of a container. Value is empty if it comes from elsewhere.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Reference names the object for people.
func (o *Object) Reference() string { return strings.ToLower(o.Kind) + "/" + o.Name }

// The kinds that matter, in addition to the kinds with pods.
var (
	kindServiceAccount = schema.GroupKind{Kind: "ServiceAccount"}
	kindConfigMap      = schema.GroupKind{Kind: "ConfigMap"}
	kindWebhooks       = schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: "MutatingWebhookConfiguration"}
)

// Read returns the part of an object that the peers read, or nil if there is none. It skips
// objects with an owner, because the stock contains the owner, except for pods that use an agent,
// which the owner does not show.
func Read(u *unstructured.Unstructured) (*Object, error) {
	group := u.GroupVersionKind().GroupKind()
	o := &Object{Kind: group.Kind, Namespace: u.GetNamespace(), Name: u.GetName(), version: u.GetResourceVersion()}
	kind, isWorkload := cluster.ByGroupKind(group)
	var err error
	switch {
	case isWorkload:
		if o.Owned = isOwned(u); o.Owned && kind.Kind != "Pod" {
			return nil, nil
		}
		if o.Pod, err = readPod(u); o.Owned && err == nil && !slices.ContainsFunc(peer.All(), o.usesAgent) {
			return nil, nil
		}
	case group == kindServiceAccount:
		o.Labels, o.Annotations = kept(u.GetLabels(), peer.OnServiceAccountLabel), kept(u.GetAnnotations(), peer.OnServiceAccount)
	case group == kindConfigMap && o.Name != "" && slices.ContainsFunc(peer.All(), func(p *peer.Peer) bool { return p.ConfigMap == o.Name }):
		o.Data, _, err = unstructured.NestedStringMap(u.Object, "data")
	case group == kindWebhooks:
		var configuration admissionregistrationv1.MutatingWebhookConfiguration
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &configuration)
		o.Registration = cluster.Registered(&configuration)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Reference(), err)
	}
	return o, nil
}

// isOwned reports whether an object of a kind that makes pods controls the object.
func isOwned(object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	_, known := cluster.ByOwner(owner)
	return known
}

// readPod reads the pod template of a workload.
func readPod(u *unstructured.Unstructured) (*Pod, error) {
	var fields map[string]any
	if path, found := cluster.TemplatePath(u); found {
		template, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		fields, _ = template.(map[string]any)
	}
	pod := new(Pod)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, pod)
	pod.ServiceAccount, pod.Labels, pod.NodeSelector = cluster.ServiceAccountOf(u), kept(pod.Labels, peer.OnPodLabel), kept(pod.NodeSelector, peer.OnPodField)
	pod.Annotations = kept(pod.Annotations, peer.OnPod, peer.OnServiceAccount) // which a peer copies to its pods
	var matter []Container
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		isProgram := slices.ContainsFunc(peer.All(), func(p *peer.Peer) bool { return p.Runs(c.Image, c.Command) })
		env := slices.DeleteFunc(c.Env, func(v Variable) bool {
			return !isProgram && !slices.ContainsFunc(peer.All(), func(p *peer.Peer) bool {
				return p.Input(peer.InContainer, v.Name) != nil || p.Input(peer.InRunningPod, v.Name) != nil
			})
		})
		if c.Env = slices.Clone(env); isProgram || len(env) > 0 {
			matter = append(matter, c)
		}
	}
	pod.Containers, pod.InitContainers = matter, nil
	return pod, err
}

// kept returns the values whose keys Lanyard or a peer reads, or nil if there are none.
func kept(values map[string]string, places ...peer.Place) map[string]string {
	maps.DeleteFunc(values, func(key, _ string) bool {
		isOurs := strings.HasPrefix(key, annotations.Prefix) && key != annotations.IdentityLabel // which the webhook sets
		return !isOurs && !slices.ContainsFunc(peer.All(), func(p *peer.Peer) bool {
			return slices.ContainsFunc(places, func(place peer.Place) bool { return p.Concerns(place, map[string]string{key: ""}) })
		})
	})
	if len(values) == 0 {
		return nil
	}
	return values
}

// usesAgent reports whether it is a pod to which the peer gave a token for an agent on the node.
// Its programs get their credentials from the agent.
func (o *Object) usesAgent(from *peer.Peer) bool {
	return o.Kind == "Pod" &&
		slices.ContainsFunc(o.Pod.Volumes, func(v Volume) bool { return slices.Contains(from.Volumes, v.Name) }) &&
		slices.ContainsFunc(o.Pod.Containers, func(c Container) bool {
			return slices.ContainsFunc(c.Env, func(v Variable) bool { return from.Input(peer.InRunningPod, v.Name) != nil })
		})
}

// bound reports whether the peer gives the pod a token for another audience.
func (p *Pod) bound(from *peer.Peer) bool {
	for key, value := range p.Annotations {
		if from.Binding != "" && strings.HasPrefix(key, from.Binding) && strings.EqualFold(value, "true") {
			return true
		}
	}
	return false
}

// settings returns the flags and variables of the peer's program, if the object has it,
// or of the peer's ConfigMap.
func (o *Object) settings(from *peer.Peer) map[string]string {
	if o.Kind == kindConfigMap.Kind && o.Name == from.ConfigMap {
		return o.Data
	}
	if o.Pod == nil {
		return nil
	}
	values := map[string]string{}
	for _, c := range o.Pod.Containers {
		if !from.Runs(c.Image, c.Command) {
			continue
		}
		for _, v := range c.Env {
			values[v.Name] = v.Value
		}
		maps.Copy(values, flags(slices.Concat(c.Command, c.Args)))
	}
	return values
}

// flags reads arguments: --name=value, --name value, or --name for true.
func flags(arguments []string) map[string]string {
	result := map[string]string{}
	for i, argument := range arguments {
		if !strings.HasPrefix(argument, "-") {
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		if !hasValue {
			value = "true"
			if i+1 < len(arguments) && !strings.HasPrefix(arguments[i+1], "-") {
				value = arguments[i+1]
			}
		}
		result["--"+name] = value
	}
	return result
}
