// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
)

// ReadLists reads the volumes, and the variables and mounts of the containers. For a pod from
// ReadAll, it only checks the limits.
func (p *Pod) ReadLists() error {
	if p.elements > 0 {
		return withField("pod: spec", p.checkLimits())
	}
	_, err := p.readLists()
	return withField("pod: spec", err)
}

// checkLimits checks the limits of Read for a pod that was read without them.
func (p *Pod) checkLimits() error {
	switch {
	case len(p.Containers) > MaxContainers:
		return errContainers
	case p.elements > maxElements:
		return errElements
	}
	return nil
}

// readLists reads the lists, and returns the number of their elements.
func (p *Pod) readLists() (elements int, err error) {
	p.Volumes, p.readOnly, p.variables, p.mounts, p.sources = p.Volumes[:0], p.readOnly[:0], p.variables[:0], p.mounts[:0], p.sources[:0]
	r := reader{Scanner: new(rawjson.Scanner), pod: p, elements: len(p.Containers)}
	most := r.objects(p.VolumesText)
	p.Volumes, p.sources = slices.Grow(p.Volumes, most), slices.Grow(p.sources, most)
	err = r.list("volumes", p.VolumesText, r.volume)
	p.SetVolumes(p.Volumes)
	if p.tooManyContainers {
		err = errContainers
	}
	for i := range p.Containers {
		if err == nil {
			err = r.lists(&p.Containers[i])
		}
	}
	return r.elements, err
}

// lists reads the lists of a container.
func (r *reader) lists(c *Container) error {
	r.pod.variables = slices.Grow(r.pod.variables, r.objects(c.EnvText))
	r.pod.mounts = slices.Grow(r.pod.mounts, r.objects(c.MountsText)+r.objects(c.devicesText))
	firstVariable, firstMount := len(r.pod.variables), len(r.pod.mounts)
	err := r.list("env", c.EnvText, r.variable)
	if err == nil {
		err = r.list("volumeMounts", c.MountsText, r.volumeMount)
	}
	if err == nil {
		err = r.list("volumeDevices", c.devicesText, r.volumeDevice)
	}
	if err != nil {
		return fmt.Errorf("%s: [%d]: %w", c.Kind, c.Index, err)
	}
	c.Variables, c.Mounts = r.pod.variables[firstVariable:], r.pod.mounts[firstMount:]
	return nil
}

// objects returns an upper bound of the number of objects in a list, so that their memory is allocated
// once, and in proportion to the text.
func (r *reader) objects(text []byte) int {
	return min(bytes.Count(text, []byte("{")), max(0, maxElements-r.elements))
}

// list reads the list of a field from text, which is nil if there is no list.
func (r *reader) list(field string, text []byte, element func(index int) error) error {
	if text == nil {
		return nil
	}
	r.Reset(text)
	return withField(field, r.elementsOf(element))
}

// elementsOf reads the next list, and counts its elements towards the limit.
func (r *reader) elementsOf(element func(index int) error) error {
	return r.Array(func(i int) error {
		if r.elements++; r.pod.limited && r.elements > maxElements {
			return errElements
		}
		return element(i)
	})
}

func (r *reader) variable(index int) error {
	v := Variable{Index: index}
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return r.bytes(&v.Name)
		case "value":
			return r.bytes(&v.Value)
		case "valueFrom":
			return r.valueFrom(&v)
		}
		return nil
	})
	r.pod.variables = append(r.pod.variables, v)
	return err
}

func (r *reader) valueFrom(v *Variable) (err error) {
	isObject := r.Kind() == rawjson.Object
	from, err := r.Span(func() error {
		return r.member("fieldRef", func() error {
			return r.member("fieldPath", func() error { return r.bytes(&v.FieldPath) })
		})
	})
	if isObject {
		v.From = from
	}
	return err
}

func (r *reader) volumeMount(index int) error {
	m := Mount{Index: index}
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return r.bytes(&m.Volume)
		case "mountPath":
			return r.bytes(&m.Path)
		case "subPath", "subPathExpr":
			text, err := r.String()
			m.Partial = m.Partial || len(text) > 0
			return err
		case "readOnly":
			return r.isTrue(&m.ReadOnly)
		}
		return nil
	})
	r.pod.mounts = append(r.pod.mounts, m)
	return err
}

func (r *reader) volumeDevice(index int) error {
	m := Mount{Index: index, Device: true}
	err := r.member("devicePath", func() error { return r.bytes(&m.Path) })
	r.pod.mounts = append(r.pod.mounts, m)
	return err
}

// ReadOnlyKinds lists the kinds of volumes that the kubelet always mounts read-only, and
// those that it mounts read-only if the source sets readOnly (GetAttributes of the plugins in
// k8s.io/kubernetes/pkg/volume). Inline disks of single clouds are omitted.
func ReadOnlyKinds() (always, ifReadOnly []string) { return alwaysReadOnly, maybeReadOnly }

var (
	alwaysReadOnly = []string{"secret", "configMap", "downwardAPI", "projected", "image"}
	maybeReadOnly  = []string{"persistentVolumeClaim", "csi", "nfs", "iscsi", "fc"}
)

func (r *reader) volume(index int) error {
	v, firstSource := Volume{Index: index}, len(r.pod.sources)
	err := r.Object(func(key []byte) error {
		isObject := r.Kind() == rawjson.Object
		v.ReadOnly = v.ReadOnly || isObject && slices.Contains(alwaysReadOnly, string(key))
		switch {
		case string(key) == "name":
			return r.bytes(&v.Name)
		case string(key) == "projected":
			return r.projected(&v)
		case slices.Contains(maybeReadOnly, string(key)):
			return r.member("readOnly", func() error { return r.isTrue(&v.ReadOnly) })
		}
		return nil
	})
	v.Sources = r.pod.sources[firstSource:]
	r.pod.Volumes = append(r.pod.Volumes, v)
	return err
}

func (r *reader) projected(v *Volume) error {
	return r.Object(func(key []byte) error {
		switch string(key) {
		case "defaultMode":
			return r.integer(&v.DefaultMode)
		case "sources":
			return r.elementsOf(r.source)
		}
		return nil
	})
}

// source reads a source of a projected volume.
func (r *reader) source(int) error {
	first := len(r.pod.sources)
	err := r.Object(func(key []byte) error {
		if r.Kind() != rawjson.Object {
			return nil
		}
		switch string(key) {
		case "serviceAccountToken":
			return r.path(Source{Token: true})
		case "downwardAPI":
			return r.member("items", func() error {
				return r.elementsOf(func(int) error { return r.path(Source{File: true}) })
			})
		}
		return nil
	})
	if len(r.pod.sources) == first {
		r.pod.sources = append(r.pod.sources, Source{})
	}
	return err
}

// path adds the rest of a source that has a path.
func (r *reader) path(s Source) error {
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "path":
			return r.bytes(&s.Path)
		case "audience":
			return r.bytes(&s.Audience)
		case "expirationSeconds":
			return r.integer(&s.ExpirationSeconds)
		case "fieldRef":
			return r.member("fieldPath", func() error { return r.bytes(&s.FieldPath) })
		}
		return nil
	})
	r.pod.sources = append(r.pod.sources, s)
	return err
}

// integer reads a number. A null leaves it unchanged.
func (r *reader) integer(into *int64) error {
	kind := r.Kind()
	var text []byte
	if err := r.text(&text); err != nil || text == nil {
		return err
	}
	number, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("got %s, want integer", rawjson.KindName(kind))
	}
	*into = number
	return nil
}
