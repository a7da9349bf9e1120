// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/peer"
)

// Object is the part of an object that a peer reads.
type Object struct {
	// Kind, Namespace and Name identify it. Source is its file, if any.
	Kind                    string
	Namespace, Name, Source string
	// Labels and Annotations are its own.
	Labels, Annotations map[string]string
	// Pod is its pod template; nil if it makes no pods.
	Pod *Pod
	// Data is the data of a ConfigMap of a peer.
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
	// Variables are the variables of all containers. Their values may be secrets.
	Variables []Variable
	// Settings are the flags and variables of the peers' programs, by the peer's name.
	Settings map[string]map[string]string
}

// Variable is a variable of a container.
type Variable struct{ Container, Name string }

// Reference names the object for people.
func (o *Object) Reference() string { return strings.ToLower(o.Kind) + "/" + o.Name }

const (
	kindServiceAccount = "ServiceAccount"
	kindConfigMap      = "ConfigMap"
	kindWebhooks       = "MutatingWebhookConfiguration"
)

// others are the kinds that matter, in addition to kinds with pods.
var others = []schema.GroupKind{
	{Kind: kindServiceAccount}, {Kind: kindConfigMap}, {Group: "admissionregistration.k8s.io", Kind: kindWebhooks},
}

// Read returns the part of an object that the peers read, nil for none. An object that
// another object makes is left out: the stock has its maker.
func Read(peers []*peer.Peer, u *unstructured.Unstructured) *Object {
	group := u.GroupVersionKind().GroupKind()
	kind, isWorkload := cluster.ByGroupKind(group)
	if !isWorkload && !slices.Contains(others, group) {
		return nil
	}
	o := &Object{Kind: group.Kind, Namespace: u.GetNamespace(), Name: u.GetName(), Labels: u.GetLabels(), Annotations: u.GetAnnotations()}
	switch {
	case isWorkload:
		if owner := metav1.GetControllerOf(u); owner != nil {
			if _, known := cluster.ByOwner(owner); known {
				return nil
			}
		}
		o.Pod = readPod(peers, &kind, u)
	case group.Kind == kindConfigMap:
		if !slices.Contains(ConfigMaps(), o.Name) {
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
func readPod(peers []*peer.Peer, kind *cluster.Kind, u *unstructured.Unstructured) *Pod {
	template, _, _ := unstructured.NestedMap(u.Object, kind.Template...)
	if len(kind.Template) == 0 {
		template = u.Object
	}
	pod := &Pod{Path: kind.Template, ServiceAccount: kind.ServiceAccount(u), Settings: map[string]map[string]string{}}
	pod.Labels, _, _ = unstructured.NestedStringMap(template, "metadata", "labels")
	pod.Annotations, _, _ = unstructured.NestedStringMap(template, "metadata", "annotations")
	pod.NodeSelector, _, _ = unstructured.NestedStringMap(template, "spec", "nodeSelector")
	for _, container := range append(objects(template, "spec", "initContainers"), objects(template, "spec", "containers")...) {
		pod.readContainer(peers, container)
	}
	return pod
}

// readContainer reads a container. Values are kept only of the program of a peer.
func (p *Pod) readContainer(peers []*peer.Peer, container map[string]any) {
	command, _, _ := unstructured.NestedStringSlice(container, "command")
	arguments, _, _ := unstructured.NestedStringSlice(container, "args")
	values := map[string]string{}
	for _, variable := range objects(container, "env") {
		p.Variables = append(p.Variables, Variable{Container: text(container, "name"), Name: text(variable, "name")})
		values[text(variable, "name")] = text(variable, "value")
	}
	program := programOf(peers, text(container, "image"), command)
	if program == "" {
		return
	}
	maps.Copy(values, flags(slices.Concat(command, arguments)))
	if p.Settings[program] == nil {
		p.Settings[program] = map[string]string{}
	}
	maps.Copy(p.Settings[program], values)
}

// flags reads arguments: --name=value, --name value, or --name for true.
func flags(arguments []string) map[string]string {
	result := map[string]string{}
	for i, argument := range arguments {
		name, found := strings.CutPrefix(argument, "-")
		if !found {
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		switch {
		case hasValue:
		case i+1 < len(arguments) && !strings.HasPrefix(arguments[i+1], "-"):
			value = arguments[i+1]
		default:
			value = "true"
		}
		result["--"+name] = value
	}
	return result
}

// programOf returns the name of the peer that a container runs, or "".
func programOf(peers []*peer.Peer, image string, command []string) string {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		image = image[:at]
	}
	for _, p := range peers {
		for _, name := range p.Programs {
			if strings.HasSuffix(image, name) || len(command) > 0 && strings.HasSuffix(command[0], name) {
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
func ConfigMaps() []string {
	var names []string
	for _, p := range peer.All() {
		if p.ConfigMap != "" {
			names = append(names, p.ConfigMap)
		}
	}
	return names
}
