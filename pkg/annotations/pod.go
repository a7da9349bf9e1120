// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Pod contains the values of a pod's annotations: whether and where to inject. They never
// choose an identity.
type Pod struct {
	// OptOut reports whether the pod opts out.
	OptOut bool
	// Insists reports whether the pod must not be created without credentials.
	Insists bool
	// Containers, if not empty, are the only containers to inject into.
	Containers []string
	// SkipContainers are excluded.
	SkipContainers []string
	// TokenExpirationSeconds overrides the ServiceAccount's lifetime, or is 0.
	TokenExpirationSeconds int64
	// PeerContainers are excluded unless Containers lists them.
	PeerContainers []string
	// LeftToPeer is the provider whose tokens the pod gets from another webhook, or empty.
	LeftToPeer string
}

// ParsePod reads the annotations of a pod, except the ones that Lanyard writes,
// and injectLabel, the value of the pod's label Inject, "" if not set.
func (s *Settings) ParsePod(annotations map[string]string, injectLabel string) (Pod, field.ErrorList) {
	if len(annotations) == 0 && injectLabel == "" {
		return Pod{PeerContainers: s.PeerContainers}, nil
	}
	if annotations[Inject] == OptOut || injectLabel == OptOut {
		// The other annotations of a pod that opts out do not matter.
		return Pod{OptOut: true}, nil
	}
	p := parser{Settings: s, annotations: annotations}
	errInject := errors.New(`must be "false" to opt out, or "true"`)
	if inject, found := annotations[Inject]; found && inject != Insist {
		p.invalid(Inject, errInject)
	}
	if injectLabel != "" && injectLabel != Insist {
		p.errs = append(p.errs, field.Invalid(labelsPath.Key(Inject), shown(injectLabel), errInject.Error()))
	}
	known := s.PodKeys()
	p.denyUnknown(unknown(annotations, append(known, Denied)), known,
		"is not an annotation of a Pod; identities are set on the ServiceAccount")
	pod := Pod{
		Insists:                annotations[Inject] == Insist || injectLabel == Insist,
		Containers:             p.names(Containers),
		SkipContainers:         p.names(SkipContainers),
		TokenExpirationSeconds: p.expiration(0),
		PeerContainers:         s.PeerContainers,
	}
	for key, value := range annotations {
		if name := s.PeerToken(key); name != "" && strings.EqualFold(value, "true") {
			pod.LeftToPeer = name
		}
	}
	if len(pod.Containers) > 0 && len(pod.SkipContainers) > 0 {
		p.invalid(SkipContainers, fmt.Errorf("must not be set together with %s", Containers))
	}
	return pod, p.errs
}

// Selects reports whether to inject into the container of this name.
func (p *Pod) Selects(container string) bool { return p.LeavesOut(container) == "" }

// LeavesOut returns the reason why nothing is injected into the container of this name, or "" if
// something is.
func (p *Pod) LeavesOut(container string) string {
	switch {
	case slices.Contains(p.Containers, container):
		return ""
	case len(p.Containers) > 0, slices.Contains(p.SkipContainers, container):
		return "the pod's annotations leave it out"
	case slices.Contains(p.PeerContainers, container):
		return "another webhook writes the whole container, so it gets only that webhook's credentials"
	}
	return ""
}

// names reads a comma-separated list of container names.
func (p *parser) names(key string) []string {
	value, found := p.annotations[key]
	if !found {
		return nil
	}
	names, err := splitList(value)
	if err == nil {
		if i := slices.IndexFunc(names, func(name string) bool {
			// The pattern takes long for a long text.
			return len(name) > validation.DNS1123LabelMaxLength || len(validation.IsDNS1123Label(name)) > 0
		}); i >= 0 {
			err = fmt.Errorf("%q cannot be the name of a container; want names separated by commas", shown(names[i]))
		}
	}
	if err != nil {
		p.invalid(key, err)
		return nil
	}
	return names
}
