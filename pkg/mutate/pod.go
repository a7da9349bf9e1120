// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutate decides what a pod gets: Decide takes the settings of a cluster, a ServiceAccount,
// a Namespace and the JSON of a pod, and returns the JSON Patch that lanyard-webhook would respond
// with, its reason and its findings. Operators use it in a pod webhook of their own, and in tests
// of the pods that they create. Package injected, below it, reads the injection back from a pod,
// and compares pods. Package reason defines the reasons, which docs/reference/reasons.md explains.
//
// The package is pure: it uses no client, no clock and no logger. ParseSettings makes the
// settings from a configuration file.
//
// Unstable before v1: a minor version may change the API.
//
// The files, in the order in which they are used:
//
//	podreader.go    reads the pod, in two steps
//	decide.go       decides, in three steps
//	account.go      checks the ServiceAccount and the policy of its namespace
//	injection.go    prepares what is the same for each pod of a ServiceAccount
//	create.go       decides about a new pod
//	ephemeral.go    decides about new ephemeral containers of a running pod
//	volume.go, copy.go, mount.go, environment.go, annotations.go
//	                decide about one part each, and encode it
//
// The guard (charts/lanyard/templates/guard.yaml) has the one rule that the API
// server must know too: a container that is not left out has something mounted at
// the token mount path. If that rule changes here, it must change there. The guard finds
// injected pods by the label annotations.IdentityLabel.
package mutate

import (
	"cmp"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Pod has the parts of a pod that the decision needs. It refers to the pod's JSON,
// which must not change while the Pod is in use.
type Pod struct {
	// ServiceAccountName is never empty: the default is filled in.
	ServiceAccountName string
	// Annotations are the annotations under Lanyard's prefix, and those that leave a
	// provider to a peer; nil if not set.
	Annotations map[string]string
	// InjectLabel is the value of the label annotations.Inject; "" if not set.
	InjectLabel string
	// IdentityLabel is the value of the label annotations.IdentityLabel; "" if not set.
	IdentityLabel string
	// Mirror reports whether the pod mirrors a static pod.
	Mirror bool
	// Windows reports whether the pod is for Windows nodes.
	Windows bool

	name, generateName []byte
	hasMetadata        bool // there is an object to add annotations to
	hasAnnotations     bool
	hasLabels          bool
	volumesText        []byte // the JSON of the list; nil if absent
	containers         []container
	tooManyContainers  bool

	// The rest is read by readLists.

	volumes jsonpatch.List
	sources map[string][]source // of the volumes in encodedInjection.volumeNames
	// readOnly are the names of the volumes that the kubelet mounts read-only, sorted.
	readOnly [][]byte
	// vars and mounts are the memory behind the containers' own lists.
	vars   []envVar
	mounts []mount

	// create and addEphemeral use plans and patch. They are here so that
	// their memory is used again, with the Pod's.
	plans []plan
	patch jsonpatch.Patch
}

// Name returns the pod's name, or its generateName if it has no name yet.
func (p *Pod) Name() string {
	return cmp.Or(texts.Cut(p.name, texts.MaxName), texts.Cut(p.generateName, texts.MaxName))
}

// source is a token, which has an audience, or a file of the downward API, which has a field,
// in a projected volume.
type source struct{ audience, fieldPath, path string }

// kind is the field of the spec that a container is in.
type kind string

const (
	initContainers      kind = "initContainers"
	containers          kind = "containers"
	ephemeralContainers kind = "ephemeralContainers"
)

type container struct {
	kind  kind
	index int
	name  []byte
	// The JSON of its lists; nil if absent.
	envText, mountsText, devicesText []byte

	// The rest is read by readLists.

	vars       []envVar
	mounts     []mount
	varsList   jsonpatch.List
	mountsList jsonpatch.List
}

type envVar struct {
	name, value []byte
	derived     bool // from valueFrom: the value is not known here
	podName     bool // from the field provider.PodNameField
}

// mount is a volume mount, or a device.
type mount struct {
	index    int // in its list
	path     []byte
	volume   []byte
	partial  bool // has a subPath
	readOnly bool
	device   bool
}

// variable returns the container's variable of this name. If there are several,
// the kubelet uses the last.
func (c *container) variable(name string) *envVar {
	for i := len(c.vars) - 1; i >= 0; i-- {
		if string(c.vars[i].name) == name {
			return &c.vars[i]
		}
	}
	return nil
}
