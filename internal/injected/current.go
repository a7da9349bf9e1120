// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected

import (
	"maps"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// State compares the credentials of a running pod with the credentials of a new pod. All
// commands use the same words.
type State string

const (
	// Current means that it has the credentials that a new pod gets, if any.
	Current State = "current"
	// Stale means that it has an identity that its ServiceAccount had before, or the token
	// of another webhook.
	Stale State = "stale"
	// Without means that it has none, and a new pod gets one.
	Without State = "without"
	// Excluded means that Lanyard is not called for its namespace.
	Excluded State = "excluded"
	// OptedOut means that it asks for no credentials.
	OptedOut State = "opted-out"
	// Unknown means that the credentials of a new pod are not known, or that no new pod
	// would be created.
	Unknown State = "unknown"
)

// Judge returns the state of a running pod. called reports whether Lanyard is called for
// its namespace, and optedOut whether the pod opts out. fresh is a new pod of the same
// ServiceAccount, or nil if it is not known.
func Judge(running, fresh *Pod, called, optedOut bool, s *annotations.Settings) State {
	switch {
	case optedOut:
		return OptedOut
	case !called:
		return Excluded
	case fresh == nil:
		return Unknown
	case running.current(fresh, s):
		return Current
	case len(running.Providers) == 0 && !running.hasToken(fresh):
		return Without
	}
	return Stale
}

// hasToken reports whether a container has a token for an audience of fresh. Another
// webhook added the token, or the user.
func (p *Pod) hasToken(fresh *Pod) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return slices.ContainsFunc(c.Tokens, func(t Token) bool {
			return slices.ContainsFunc(fresh.Tokens, func(f Token) bool { return f.Audience == t.Audience })
		})
	})
}

// current reports whether a running pod has the credentials that fresh, a new pod of
// the same ServiceAccount, gets. The containers of the two may differ: variables and
// mounts that a container sets itself, so that Lanyard leaves them out, do not count.
func (p *Pod) current(fresh *Pod, s *annotations.Settings) bool {
	if !slices.Equal(p.Providers, fresh.Providers) || !maps.Equal(p.Files, fresh.Files) ||
		!slices.EqualFunc(p.Tokens, fresh.Tokens, sameToken) || !p.currentCopies(fresh) {
		return false
	}
	is := fresh.injectedValues(nil)
	was := p.injectedValues(is)
	for name := range was {
		if is[name] == nil {
			return false
		}
	}
	for _, d := range s.Providers {
		for i := range d.Variables {
			if v := &d.Variables[i]; !p.currentVariable(d, v, was, is[v.Name]) {
				return false
			}
		}
	}
	return true
}

// sameToken compares two tokens. The volumes may have different names.
func sameToken(a, b Token) bool {
	a.Volume = b.Volume
	return a == b
}

// currentCopies compares the copies. A pod that uses the name of a copy's volume for
// something else gets no copy.
func (p *Pod) currentCopies(fresh *Pod) bool {
	isOld := func(t Token) bool { return !slices.Contains(fresh.Copies, t) }
	isMissing := func(t Token) bool {
		return !slices.ContainsFunc(p.volumes, func(v volume) bool { return v.Name == t.Volume })
	}
	return !slices.ContainsFunc(p.Copies, isOld) && !slices.ContainsFunc(fresh.Copies, isMissing)
}

// injectedValues returns the values of Lanyard's variables in all containers. A
// container's own value can look like Lanyard's, so there can be several. If is has the
// variables of a new pod, others before the first of them are the container's own: with
// the annotation tokens, containers set the role or the client ID there.
func (p *Pod) injectedValues(is map[string][]string) map[string][]string {
	values := map[string][]string{}
	for i := range p.Containers {
		own := is != nil
		for _, v := range p.Containers[i].Variables {
			if !v.Injected {
				continue
			}
			if own = own && is[v.Name] == nil; !own {
				values[v.Name] = append(values[v.Name], v.Value)
			}
		}
	}
	return values
}

// currentVariable reports whether the pod has the values that a new pod gets in a
// variable of the provider.
func (p *Pod) currentVariable(d *annotations.Provider, v *annotations.Variable, was map[string][]string, is []string) bool {
	if len(is) == 0 || v.PodName != "" && !provider.PodNameFits(p.Name) {
		return true
	}
	if values, found := was[v.Name]; found {
		return !slices.ContainsFunc(is, func(value string) bool { return !slices.Contains(values, value) })
	}
	gets := slices.ContainsFunc(d.Variables, func(other annotations.Variable) bool { return was[other.Name] != nil })
	// A container that selects a profile does not get all. The file shows a change.
	return !gets || (v.Direct || v.Profiles) && p.Files[d.Name] != "" || slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.TakesPart && slices.ContainsFunc(c.Variables, func(set Variable) bool {
			return set.Name == v.Name || inGroup(d, v.Group, set.Name) || p.isOwnCredential(d, &set)
		})
	})
}

// isOwnCredential reports whether a variable of a container has a credential for the provider
// that is not Lanyard's: the container gets none of the provider's variables.
func (p *Pod) isOwnCredential(d *annotations.Provider, set *Variable) bool {
	i := slices.IndexFunc(d.Variables, func(v annotations.Variable) bool { return v.Name == set.Name })
	if i < 0 {
		return false
	}
	want, _ := paths(d, p.MountPath).Expand(d.Variables[i].Value)
	var copied string
	for _, t := range p.Copies {
		if t.Provider == d.Name {
			copied = t.File
		}
	}
	return d.Variables[i].IsOwnCredential([]byte(Slashes(set.Value)), set.From != nil, want, copied)
}

// inGroup reports whether the provider's variable belongs to the group.
func inGroup(d *annotations.Provider, group, name string) bool {
	return group != "" && slices.ContainsFunc(d.Variables, func(v annotations.Variable) bool { return v.Group == group && v.Name == name })
}
