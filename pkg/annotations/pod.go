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

// Pod is what a pod's own annotations say: never which identity, only whether
// and where.
type Pod struct {
	// OptOut: the pod wants nothing of Lanyard.
	OptOut bool
	// Containers, where not empty, are the only containers to inject into.
	Containers []string
	// SkipContainers are left out.
	SkipContainers []string
	// TokenExpirationSeconds is over the account's; 0 without one.
	TokenExpirationSeconds int64
}

// ParsePod reads the annotations of a pod, Lanyard's own marks aside.
func ParsePod(keys *Keys, annotations map[string]string) (Pod, field.ErrorList) {
	if len(annotations) == 0 {
		return Pod{}, nil
	}
	p := parser{keys: keys, annotations: annotations}
	var pod Pod
	switch inject, found := annotations[keys.Inject]; {
	case found && inject == "false":
		// Whoever opts out is left alone, whatever else is written.
		return Pod{OptOut: true}, nil
	case found && inject != "true":
		p.invalid(keys.Inject, errors.New(`must be "false" to opt out, or "true"`))
	}
	p.refuseUnknown(keys.pod(), podHint)
	pod.Containers = p.names(keys.Containers)
	pod.SkipContainers = p.names(keys.SkipContainers)
	if len(pod.Containers) > 0 && len(pod.SkipContainers) > 0 {
		p.invalid(keys.SkipContainers, fmt.Errorf("cannot stand beside %s", keys.Containers))
	}
	pod.TokenExpirationSeconds = p.expiration()
	return pod, p.errs
}

// Selects says whether the container of this name is to be injected into.
func (p *Pod) Selects(container string) bool {
	if len(p.Containers) > 0 {
		return slices.Contains(p.Containers, container)
	}
	return !slices.Contains(p.SkipContainers, container)
}

// Expiration gives the lifetime of the pod's tokens: its own annotation's, the
// identity's, the cluster's. A pod that asks for less than Azure's SDKs can
// live with is refused.
func Expiration(keys *Keys, pod *Pod, identity *Identity, defaults *Defaults) (int64, field.ErrorList) {
	seconds := identity.TokenExpirationSeconds
	if pod.TokenExpirationSeconds != 0 {
		seconds = pod.TokenExpirationSeconds
		if identity.Azure != nil && seconds < MinAzureTokenExpirationSeconds {
			return 0, field.ErrorList{field.Invalid(annotationsPath.Key(keys.TokenExpirationSeconds), seconds, errExpiration.Error())}
		}
	}
	if seconds == 0 {
		seconds = defaults.TokenExpirationSeconds
		if identity.Azure != nil {
			// Nobody asked for the short one on this account's behalf.
			seconds = max(seconds, MinAzureTokenExpirationSeconds)
		}
	}
	return seconds, nil
}

// maxNames is more than anyone has containers in a pod. Each of them is looked
// for in the pod, so there has to be a bound.
const maxNames = 256

// names reads a comma-separated list of container names.
func (p *parser) names(key string) []string {
	value, found := p.annotations[key]
	if !found {
		return nil
	}
	names, err := splitList(value)
	if err != nil {
		p.invalid(key, err)
		return nil
	}
	if len(names) > maxNames {
		p.invalid(key, fmt.Errorf("must have at most %d names", maxNames))
		return nil
	}
	for _, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			p.invalid(key, fmt.Errorf("%q cannot be the name of a container; want names separated by commas", name))
			return nil
		}
	}
	return names
}

// splitList takes a comma-separated list apart. Spaces around a comma are no
// part of an element; an element is never empty.
func splitList(value string) ([]string, error) {
	elements := strings.Split(value, ",")
	for i, element := range elements {
		elements[i] = strings.TrimSpace(element)
		if elements[i] == "" {
			return nil, errors.New("must be a list separated by commas, with no empty element")
		}
	}
	return elements, nil
}
