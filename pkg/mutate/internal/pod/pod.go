// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod parses the JSON of a pod for the packages mutate and injected.
//
// Most fields are slices of the JSON, which is not copied: the JSON must not change while they are
// in use.
package pod

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Pod contains the fields of a pod that Lanyard reads.
type Pod struct {
	Name, GenerateName []byte
	// HasMetadata, HasAnnotations and HasLabels report whether there is an object to add to.
	HasMetadata, HasAnnotations, HasLabels bool
	// Annotations is nil if the pod has none. Read keeps only those that a decision needs.
	Annotations map[string]string
	// InjectLabel and IdentityLabel are the values of the labels annotations.Inject and
	// annotations.IdentityLabel, or "" if not set.
	InjectLabel, IdentityLabel string
	// Mirror reports whether the pod mirrors a static pod.
	Mirror bool
	// ServiceAccountName is never empty: the default is filled in.
	ServiceAccountName string
	// Windows reports whether the pod is for Windows nodes.
	Windows bool
	// Containers lists the containers of all kinds, without their variables and mounts.
	Containers []Container
	// HasInitContainers reports whether there is a list of init containers to add to.
	HasInitContainers bool
	// VolumesText is the JSON of the list of volumes, or nil if it is absent or null.
	VolumesText []byte
	// securityText is the JSON of the security context, or nil if it is absent or null.
	securityText []byte

	// ReadLists sets the following fields, and the lists of the containers.

	Volumes []Volume

	tooManyContainers bool
	// limited reports whether the limits of the reader apply.
	limited bool
	// elements is the number of elements of all lists, if ReadAll has read them.
	elements int
	// readOnly are the names of the volumes that the kubelet mounts read-only, sorted.
	readOnly [][]byte
	// Backing arrays of the lists of containers and volumes.
	variables []Variable
	mounts    []Mount
	sources   []Source
}

// Kind is the field of the spec that a container is in.
type Kind string

// Kinds of containers.
const (
	InitContainers      Kind = "initContainers"
	Containers          Kind = "containers"
	EphemeralContainers Kind = "ephemeralContainers"
)

// Container is a container of a pod.
type Container struct {
	Kind  Kind
	Index int // in the list of its kind
	Name  []byte
	// EnvText and MountsText are the JSON of lists, or nil if they are absent or null.
	EnvText, MountsText []byte
	devicesText         []byte
	// ArgsText is the JSON of the arguments. Only ReadAll reads it.
	ArgsText []byte

	// ReadLists sets the following fields.

	Variables []Variable
	// Mounts are the volume mounts and the devices.
	Mounts []Mount
}

// Variable is an environment variable.
type Variable struct {
	Index       int // in its list
	Name, Value []byte
	// From is the JSON of valueFrom, or nil if there is none. If it is set, the value is
	// unknown.
	From []byte
	// FieldPath is the field of the pod that the value comes from, or nil if it comes from elsewhere.
	FieldPath []byte
}

// Mount is a volume mount, or a device.
type Mount struct {
	Index int // in its list
	Path  []byte
	// Volume is the name of the volume.
	Volume []byte
	// Partial reports whether only a part of the volume is mounted, by subPath or subPathExpr.
	Partial  bool
	ReadOnly bool
	Device   bool
}

// Volume is a volume of the pod.
type Volume struct {
	Index int // in its list
	Name  []byte
	// DefaultMode and Sources are set only for a projected volume.
	DefaultMode int64
	Sources     []Source
	// ReadOnly reports whether the kubelet mounts the volume read-only.
	ReadOnly bool
}

// Source is one source of a projected volume. Each file of the downward API is a separate source.
type Source struct {
	// Token and File report the kind of the source. Both are false for any other kind.
	Token, File bool
	// Path is the path in the volume.
	Path []byte
	// Audience and ExpirationSeconds are fields of a token.
	Audience          []byte
	ExpirationSeconds int64
	// FieldPath is the field of the pod that is the content of a file.
	FieldPath []byte
}

// RunsAsRoot reports whether the user of the pod, which is that of containers without their own, is
// root.
func (p *Pod) RunsAsRoot() bool {
	if p.securityText == nil {
		return false
	}
	user := int64(-1)
	r := reader{Scanner: rawjson.NewScanner(p.securityText), pod: p}
	err := r.member("runAsUser", func() error { return r.integer(&user) })
	return err == nil && user == 0
}

// Variable returns the container's variable of this name. If there are several, the kubelet uses
// the last.
func (c *Container) Variable(name string) *Variable {
	for i := range slices.Backward(c.Variables) {
		if string(c.Variables[i].Name) == name {
			return &c.Variables[i]
		}
	}
	return nil
}

// ShownName returns the pod's name for messages, or its generateName if it has no name yet.
func (p *Pod) ShownName() string {
	return cmp.Or(texts.Cut(p.Name, texts.MaxName), texts.Cut(p.GenerateName, texts.MaxName))
}

// Volume returns the last volume of this name, or nil if there is none.
func (p *Pod) Volume(name string) *Volume {
	for i := range slices.Backward(p.Volumes) {
		if string(p.Volumes[i].Name) == name {
			return &p.Volumes[i]
		}
	}
	return nil
}

// Clone returns a copy whose annotations, containers and volumes can be replaced. It refers to the
// same JSON.
func (p *Pod) Clone() *Pod {
	clone := *p
	clone.Annotations, clone.Containers = maps.Clone(p.Annotations), slices.Clone(p.Containers)
	clone.Volumes, clone.readOnly = slices.Clone(p.Volumes), slices.Clone(p.readOnly)
	return &clone
}

// SetVolumes replaces the volumes.
func (p *Pod) SetVolumes(volumes []Volume) {
	p.Volumes, p.readOnly = volumes, p.readOnly[:0]
	for i := range volumes {
		if volumes[i].ReadOnly {
			p.readOnly = append(p.readOnly, volumes[i].Name)
		}
	}
	slices.SortFunc(p.readOnly, bytes.Compare)
}

// IsReadOnly reports whether the kubelet mounts the volume read-only in every container.
func (p *Pod) IsReadOnly(volume []byte) bool {
	_, found := slices.BinarySearchFunc(p.readOnly, volume, bytes.Compare)
	return found
}

// HasToken reports whether the volume has a token for the audience at the path. A nil Volume has
// none.
func (v *Volume) HasToken(audience, path string) bool {
	return v != nil && slices.ContainsFunc(v.Sources, func(s Source) bool {
		return s.Token && string(s.Audience) == audience && string(s.Path) == path
	})
}

// HasFile reports whether the volume has a field of the pod as a file at the path. A nil Volume has
// none.
func (v *Volume) HasFile(fieldPath, path string) bool {
	return v != nil && slices.ContainsFunc(v.Sources, func(s Source) bool {
		return s.File && string(s.FieldPath) == fieldPath && string(s.Path) == path
	})
}
