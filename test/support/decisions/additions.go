// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decisions

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Additions contains what the webhooks add to a pod. A string in a list is the short form
// of an object; other objects are written in full.
type Additions struct {
	// Injected is the annotation lanyard.dev/injected. It comes with the label of an
	// injected pod.
	Injected string `json:"injected,omitempty"`
	// Annotations are the other annotations.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Labels are the added labels; nil for those that come with Injected.
	Labels map[string]string `json:"labels,omitempty"`
	// Volumes are tokens and files: VOLUME/PATH=AUDIENCE,SECONDS and VOLUME/PATH=FIELD.
	// They follow the pod's own volumes, unless the list contains the names of those.
	Volumes []any `json:"volumes,omitempty"`
	// InitContainers are like Volumes, and have no short form.
	InitContainers []any `json:"initContainers,omitempty"`
	// Containers contains variables and mounts by the names of containers: NAME=VALUE, NAME for no
	// value, NAME from FIELD, and PATH=VOLUME. The token mount comes first, and is omitted if it is
	// the usual one.
	Containers map[string][]any `json:"containers,omitempty"`
}

const (
	injectedAnnotation = "lanyard.dev/injected"
	every              = "every container"
	from               = " from "
	mountPath          = "/var/run/secrets/lanyard.dev/serviceaccount"
	ephemeral          = "ephemeralContainers"
)

type object = map[string]any

var (
	usualLabels = map[string]string{"lanyard.dev/identity": "injected"}
	usualMount  = mount("bound-sa-token", mountPath)
	kinds       = []string{"initContainers", "containers", ephemeral}
	tokenValue  = regexp.MustCompile(`^(.*),([0-9]+)$`)
)

func mount(volume, path string) object {
	return object{"name": volume, "readOnly": true, "mountPath": path}
}

func decode(text []byte) (pod object) {
	if err := json.Unmarshal(text, &pod); err != nil {
		panic(err) // the text has been parsed before
	}
	return pod
}

func encode(pod object) []byte {
	text, err := json.Marshal(pod)
	if err != nil {
		panic(err) // the object comes from JSON
	}
	return text
}

// get returns the object in a field, or nil if there is none.
func get(o object, field string) object {
	value, _ := o[field].(object)
	return value
}

// at returns the object in a field, and creates it if there is none.
func at(o object, field string) object {
	if get(o, field) == nil {
		o[field] = object{}
	}
	return get(o, field)
}

func list(o object, field string) []any {
	values, _ := o[field].([]any)
	return values
}

func nameOf(item any) string {
	o, _ := item.(object)
	name, _ := o["name"].(string)
	return name
}

// IsEmpty reports whether nothing is added.
func (a *Additions) IsEmpty() bool { return reflect.DeepEqual(a, &Additions{}) }

// AddTo returns the pod with the additions.
func (a *Additions) AddTo(pod []byte) ([]byte, error) {
	if a.IsEmpty() {
		return pod, nil
	}
	result := decode(pod)
	a.addMetadata(at(result, "metadata"))
	spec := at(result, "spec")
	for _, kind := range kinds {
		for _, c := range list(spec, kind) {
			if err := a.addToContainer(c.(object)); err != nil {
				return nil, fmt.Errorf("container %s: %w", nameOf(c), err)
			}
		}
	}
	for field, items := range map[string][]any{"volumes": expandVolumes(a.Volumes), kinds[0]: a.InitContainers} {
		if len(items) == 0 {
			continue
		}
		merged, err := merge(list(spec, field), items)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		spec[field] = merged
	}
	return encode(result), nil
}

func (a *Additions) addMetadata(metadata object) {
	labels := a.Labels
	if labels == nil && a.Injected != "" {
		labels = usualLabels
	}
	annotations := maps.Clone(a.Annotations)
	if a.Injected != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[injectedAnnotation] = a.Injected
	}
	for field, values := range map[string]map[string]string{"annotations": annotations, "labels": labels} {
		for key, value := range values {
			at(metadata, field)[key] = value
		}
	}
}

// merge returns the pod's own items and the new ones. Own items come first, unless the new ones
// include their names: then they take those places.
func merge(own, items []any) ([]any, error) {
	var merged []any
	names := 0
	for _, item := range items {
		if name, ok := item.(string); ok {
			i := slices.IndexFunc(own, func(item any) bool { return nameOf(item) == name })
			if i < 0 {
				return nil, fmt.Errorf("the pod has no %s", name)
			}
			item = own[i]
			names++
		}
		merged = append(merged, item)
	}
	switch names {
	case 0:
		return append(slices.Clone(own), merged...), nil
	case len(own):
		return merged, nil
	}
	return nil, errors.New("only some of the pod's own have a place")
}

// expandVolumes returns the volumes that the short forms stand for. The lines of one volume
// follow each other.
func expandVolumes(lines []any) []any {
	var volumes []any
	var last object // with a short form
	for _, line := range lines {
		text, _ := line.(string)
		name, file, isFile := strings.Cut(text, "/")
		if !isFile {
			volumes, last = append(volumes, line), nil
			continue
		}
		source := expandSource(file)
		if last == nil || last["name"] != name {
			last = object{"name": name, "projected": object{"defaultMode": float64(0o644)}}
			volumes = append(volumes, last)
		}
		projected := at(last, "projected")
		projected["sources"] = append(list(projected, "sources"), source)
	}
	return volumes
}

func expandSource(file string) object {
	path, value, _ := strings.Cut(file, "=")
	if token := tokenValue.FindStringSubmatch(value); token != nil {
		seconds, _ := strconv.Atoi(token[2])
		return object{"serviceAccountToken": object{"path": path, "audience": token[1], "expirationSeconds": float64(seconds)}}
	}
	return object{"downwardAPI": object{"items": []any{object{"path": path, "fieldRef": fieldRef(value)}}}}
}

func fieldRef(path string) object { return object{"apiVersion": "v1", "fieldPath": path} }

// addToContainer adds variables and mounts to a container.
func (a *Additions) addToContainer(c object) error {
	groups := 0
	for names, lines := range a.Containers {
		if names != every && !slices.Contains(strings.Split(names, ", "), nameOf(c)) {
			continue
		}
		if groups++; groups > 1 {
			return errors.New("it is there twice")
		}
		mounts, env := expandContainer(lines)
		if !slices.ContainsFunc(mounts, isTokenMount) {
			mounts = slices.Insert(mounts, 0, any(usualMount))
		}
		c["volumeMounts"] = append(list(c, "volumeMounts"), mounts...)
		if len(env) > 0 {
			c["env"] = addVariables(list(c, "env"), env)
		}
	}
	return nil
}

// addVariables adds the variables. It replaces a variable that the container already has, as some
// webhooks do.
func addVariables(own, env []any) []any {
	all := slices.Clone(own)
	for _, v := range env {
		if i := slices.IndexFunc(own, func(o any) bool { return nameOf(o) == nameOf(v) }); i >= 0 {
			all[i] = v
		} else {
			all = append(all, v)
		}
	}
	return all
}

func isTokenMount(m any) bool { return m.(object)["mountPath"] == mountPath }

// expandContainer returns the mounts and the variables that the short forms stand for.
func expandContainer(lines []any) (mounts, env []any) {
	for _, line := range lines {
		text, isShort := line.(string)
		name, value, isVariable := strings.Cut(text, "=")
		switch {
		case !isShort && line.(object)["mountPath"] != nil:
			mounts = append(mounts, line)
		case !isShort:
			env = append(env, line)
		case strings.HasPrefix(text, "/"):
			end := max(strings.LastIndex(text, "="), 0)
			mounts = append(mounts, mount(text[end+1:], text[:end]))
		case isVariable:
			env = append(env, object{"name": name, "value": value})
		default:
			name, field, isField := strings.Cut(text, from)
			v := object{"name": name}
			if isField {
				v["valueFrom"] = object{"fieldRef": fieldRef(field)}
			}
			env = append(env, v)
		}
	}
	return mounts, env
}
