// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutate decides what to inject into a pod. Decide takes the settings of a cluster, a
// ServiceAccount, a Namespace and the JSON of a pod, and returns the JSON Patch, reason and
// findings of lanyard-webhook. Operators can use it in their own pod webhooks, and in tests
// of the pods that they create. Package injected, below it, reads the injection back from a
// pod, and compares pods. Package reason defines the reasons, which docs/reference/reasons.md
// explains.
//
// The package is pure: it uses no client, no clock and no logger. ParseSettings creates
// the settings from a configuration file.
//
// Unstable before v1: a minor version may change the API.
//
// The files, in the order in which they are used:
//
//	pod.go          reads the pod, with package internal/pod
//	decide.go       decides, in three steps
//	account.go      checks the ServiceAccount and the policy of its namespace
//	prepare.go      prepares what is the same for each pod of a ServiceAccount
//	create.go       decides about a new pod
//	ephemeral.go    decides about new ephemeral containers of a running pod
//	volume.go, mount.go, environment.go, annotations.go, verify.go
//	                decide about one part each, and encode it
//
// The guard (charts/lanyard/templates/guard.yaml) repeats one rule for the API server: a
// container that is not left out has something mounted at the token mount path. If that
// rule changes here, it must change there. The guard finds injected pods by the label
// annotations.IdentityLabel.
package mutate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Pod contains the parts of a pod that a decision needs. It refers to the pod's JSON, which
// must not change while the Pod is in use.
type Pod struct {
	read    pod.Pod
	changes changes
}

// changes are the additions to a pod. They are part of the Pod so that their memory is reused
// with it.
type changes struct {
	plans []plan
	patch rawjson.Patch // without the plans
	// marks and volumes are part of the patch.
	marks   []annotation
	volumes [][]byte
	// verifier is the added container that verifies, or nil. It is part of the patch.
	verifier *plan
}

func (c *changes) reset() {
	c.plans, c.marks, c.volumes, c.verifier = c.plans[:0], nil, nil, nil
	c.patch.Reset()
}

// addTo applies the additions to the pod instead of its JSON.
func (c *changes) addTo(p *pod.Pod) error {
	added := pod.Pod{VolumesText: list(c.volumes)}
	plans := c.plans
	if c.verifier != nil {
		plans = append(slices.Clone(plans), *c.verifier)
	}
	for i := range plans {
		added.Containers = append(added.Containers, pod.Container{EnvText: list(plans[i].variables), MountsText: list(plans[i].mounts)})
	}
	if err := added.ReadLists(); err != nil {
		return err
	}
	for i := range added.Containers {
		into := plans[i].container
		into.Variables = slices.Concat(into.Variables, added.Containers[i].Variables)
		into.Mounts = slices.Concat(into.Mounts, added.Containers[i].Mounts)
	}
	if c.verifier != nil {
		p.Containers = append(p.Containers, *c.verifier.container)
	}
	if len(c.volumes) > 0 {
		p.SetVolumes(slices.Concat(p.Volumes, added.Volumes))
	}
	for _, a := range c.marks {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[a.key] = a.value
	}
	return nil
}

// list returns the JSON of a list, or nil if it is empty.
func list(elements [][]byte) []byte {
	if len(elements) == 0 {
		return nil
	}
	return slices.Concat([]byte("["), bytes.Join(elements, []byte(",")), []byte("]"))
}

// ReadPod parses the JSON of a pod, which must not change while the Pod is in use.
func ReadPod(pod []byte, s *annotations.Settings) (*Pod, error) {
	p, scanner := new(Pod), rawjson.NewScanner(pod)
	if err := p.read.Read(scanner, s); err != nil {
		return nil, err
	}
	if err := scanner.End(); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	return p, nil
}

// ReadNext parses the pod that is the next value of the decoder of text. It replaces the
// previous content of p and reuses its memory. The text must not change while the Pod is in
// use.
func (p *Pod) ReadNext(text []byte, decoder *jsontext.Decoder, s *annotations.Settings) error {
	return p.read.Read(rawjson.Continue(text, decoder), s)
}

// readLists reads the lists of the pod. Its error is a *reason.Error.
func (p *Pod) readLists() error {
	err := p.read.ReadLists()
	switch {
	case errors.Is(err, pod.ErrTooLarge):
		return &reason.Error{Reason: reason.TooLarge, Err: err}
	case err != nil:
		return &reason.Error{Reason: reason.InvalidReview, Err: err}
	}
	return nil
}

// ReadOnlyKinds lists the kinds of volumes that the kubelet always mounts read-only, and
// those that it mounts read-only if the source sets readOnly.
func ReadOnlyKinds() (always, ifReadOnly []string) { return pod.ReadOnlyKinds() }
