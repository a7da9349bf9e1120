// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/workload"
)

// Object is what is kept of an object: only what a peer reads.
type Object struct {
	// Kind, Namespace and Name identify it. Source is its file, if any.
	Kind                    string
	Namespace, Name, Source string
	// Labels and Annotations are its own.
	Labels, Annotations map[string]string
	// Pod is its pod template; nil if it makes no pods.
	Pod *Pod
	// Data is that of a ConfigMap of a peer.
	Data map[string]string
	// Webhooks are the names of the webhooks of a configuration.
	Webhooks []string
}

// Pod is a pod template, or a pod.
type Pod struct {
	// Path is where the template is in the object.
	Path                []string
	Labels, Annotations map[string]string
	ServiceAccount      string
	NodeSelector        map[string]string
	Containers          []Container
}

// Container is a container of a pod. Arguments and the values of variables are kept
// only of the program of a peer: others may have secrets.
type Container struct {
	Name      string
	Variables []string
	Arguments []string
	Values    map[string]string
	// Program is the name of the peer that it runs; empty for none.
	Program string
}

// Reference names the object for people.
func (o *Object) Reference() string { return strings.ToLower(o.Kind) + "/" + o.Name }

const (
	kindServiceAccount = "ServiceAccount"
	kindNamespace      = "Namespace"
	kindConfigMap      = "ConfigMap"
	kindWebhooks       = "MutatingWebhookConfiguration"
)

// others are the kinds that matter, in addition to those with pods.
var others = map[schema.GroupKind]bool{
	{Kind: kindServiceAccount}: true,
	{Kind: kindNamespace}:      true,
	{Kind: kindConfigMap}:      true,
	{Group: "admissionregistration.k8s.io", Kind: kindWebhooks}: true,
}

// Read returns what is kept of an object, nil if no peer can have to do with it. An
// object that another one makes is left out: that one is in the stock.
func Read(peers []*Peer, u *unstructured.Unstructured) *Object {
	group := u.GroupVersionKind().GroupKind()
	kind, isWorkload := workload.ByGroupKind(group)
	if !isWorkload && !others[group] {
		return nil
	}
	o := &Object{Kind: group.Kind, Namespace: u.GetNamespace(), Name: u.GetName(), Labels: u.GetLabels(), Annotations: u.GetAnnotations()}
	switch {
	case isWorkload:
		if owner := metav1.GetControllerOf(u); owner != nil {
			if _, known := workload.ByOwner(owner); known {
				return nil
			}
		}
		o.Pod = readPod(peers, &kind, u)
	case group.Kind == kindConfigMap:
		if o.Name != eksConfigMap && o.Name != azureConfigMap {
			return nil
		}
		o.Data, _, _ = unstructured.NestedStringMap(u.Object, "data")
	case group.Kind == kindWebhooks:
		for _, entry := range objects(u.Object, "webhooks") {
			o.Webhooks = append(o.Webhooks, text(entry, "name"))
		}
	}
	return o
}

// readPod reads the pod template of a workload.
func readPod(peers []*Peer, kind *workload.Kind, u *unstructured.Unstructured) *Pod {
	template, _, _ := unstructured.NestedMap(u.Object, kind.Template...)
	if len(kind.Template) == 0 {
		template = u.Object
	}
	pod := &Pod{Path: kind.Template, ServiceAccount: kind.ServiceAccount(u)}
	pod.Labels, _, _ = unstructured.NestedStringMap(template, "metadata", "labels")
	pod.Annotations, _, _ = unstructured.NestedStringMap(template, "metadata", "annotations")
	pod.NodeSelector, _, _ = unstructured.NestedStringMap(template, "spec", "nodeSelector")
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range objects(template, "spec", list) {
			pod.Containers = append(pod.Containers, readContainer(peers, container))
		}
	}
	return pod
}

// readContainer reads a container.
func readContainer(peers []*Peer, container map[string]any) Container {
	c := Container{Name: text(container, "name")}
	command, _, _ := unstructured.NestedStringSlice(container, "command")
	arguments, _, _ := unstructured.NestedStringSlice(container, "args")
	c.Program = programOf(peers, text(container, "image"), command)
	if c.Program != "" {
		c.Arguments, c.Values = slices.Concat(command, arguments), map[string]string{}
	}
	for _, variable := range objects(container, "env") {
		name := text(variable, "name")
		c.Variables = append(c.Variables, name)
		if c.Program != "" {
			c.Values[name] = text(variable, "value")
		}
	}
	return c
}

// programOf returns the name of the peer that a container runs, or "".
func programOf(peers []*Peer, image string, command []string) string {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		image = image[:at]
	}
	for _, p := range peers {
		for _, name := range p.programs {
			if strings.HasSuffix("/"+image, name) || len(command) > 0 && strings.HasSuffix("/"+command[0], name) {
				return p.Name
			}
		}
	}
	return ""
}

// objects returns a list of objects.
func objects(object map[string]any, path ...string) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	elements, _ := list.([]any)
	var result []map[string]any
	for _, element := range elements {
		if fields, ok := element.(map[string]any); ok {
			result = append(result, fields)
		}
	}
	return result
}

func text(object map[string]any, field string) string {
	value, _ := object[field].(string)
	return value
}

// ConfigMaps lists the names of the ConfigMaps that matter.
func ConfigMaps() []string { return []string{eksConfigMap, azureConfigMap} }
