// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// State is the result of comparing the credentials of a running pod with those of a new pod. All
// commands use these words.
type State string

const (
	// Current means that it has the credentials that a new pod gets.
	Current State = "current"
	// Stale means that it has an identity that its ServiceAccount had before, from Lanyard or
	// from another webhook.
	Stale State = "stale"
	// Without means that it has none, and a new pod gets one.
	Without State = "without"
	// LeftOut means that neither it nor a new pod gets any, because its annotations leave
	// out all containers, or something else is mounted at their token mount path.
	LeftOut State = "left-out"
	// None means that it has no credentials, and that its ServiceAccount asks for none.
	None State = "none"
	// Excluded means that Lanyard is not called for it, or for its namespace.
	Excluded State = "excluded"
	// OptedOut means that it asks for no credentials.
	OptedOut State = "opted-out"
	// Unknown means that the credentials of a new pod are not known, or that no new pod
	// would be created.
	Unknown State = "unknown"
)

// Comparison is the result of Comparer.Compare.
type Comparison struct {
	State State
	// Decision is the decision about a new pod with the fields of the running one, without its
	// patch. If such a pod would be denied, it is nil, and Denial says why.
	Decision *mutate.Decision
	Denial   *reason.Error
	// OfOthers is the result of Pod.OfOthers. Differences is set only for such a pod, and for a pod
	// with containers of another webhook that serve its programs.
	OfOthers    bool
	Differences []Difference
}

// Comparer compares pods of one ServiceAccount with new ones. It must not be used concurrently.
type Comparer struct {
	settings *annotations.Settings
	inject   func(p, old *pod.Pod) (*mutate.Decision, error)
}

// NewComparer returns a Comparer. The parameters are those of mutate.Decide, and must not change.
func NewComparer(s *annotations.Settings, serviceAccount, namespace *annotations.Object) *Comparer {
	return &Comparer{s, mutate.Injector(s, serviceAccount, namespace)}
}

// Compare compares a running pod, as JSON, with a new one: it removes what Lanyard injected,
// decides about the rest, and compares the pod that results. The State is never Excluded,
// because a pod does not show whether Lanyard is called for it.
//
// A container can set a variable itself, directly before Lanyard's, to a value that Lanyard could
// have written for an earlier identity. unchanged reports whether the ServiceAccount is known to
// have the same annotations as when the pod was created: then such a variable is the container's
// own. Otherwise it counts as Lanyard's, unless another container has the current value. Compare
// returns an error only if the JSON is not a pod.
func (c *Comparer) Compare(pod []byte, unchanged bool) (Comparison, error) {
	running, err := Read(json.RawMessage(pod), c.settings)
	if err != nil {
		return Comparison{}, err
	}
	one := comparison{c, running}
	ofOthers, compare := running.OfOthers(), one.compareOwn
	if ofOthers {
		compare = one.compareOthers
	}
	result, err := compare(unchanged)
	if denied, ok := errors.AsType[*reason.Error](err); ok {
		return Comparison{State: Unknown, Denial: denied, OfOthers: ofOthers}, nil
	}
	return result, err
}

// compareOwn compares a pod that Lanyard injected, or that nobody injected.
func (c *comparison) compareOwn(unchanged bool) (Comparison, error) {
	original, fresh, decision, err := c.again(unchanged, nil)
	if err == nil && !unchanged && !same(c.running, fresh) && c.showsOthers(original, fresh) {
		_, fresh, decision, err = c.again(true, nil)
	}
	if err != nil {
		return Comparison{}, err
	}
	return Comparison{State: c.running.state(fresh, decision), Decision: decision, Differences: c.running.lost(fresh)}, nil
}

// state returns the state of a running pod. fresh is a new pod, and decision is about it.
func (p *Pod) state(fresh *Pod, decision *mutate.Decision) State {
	switch {
	case decision.Reason == reason.OptedOut:
		return OptedOut
	case !same(p, fresh):
		return p.differing(fresh)
	case decision.Reason == reason.NoIdentity:
		return None
	case decision.Reason == reason.Injected, decision.Reason == reason.AlreadyInjected, decision.Reason == reason.MirrorPod:
		return Current
	}
	return LeftOut
}

// differing returns the state of a pod that is not the same as a new one.
func (p *Pod) differing(fresh *Pod) State {
	if len(p.Providers) == 0 && !p.hasToken(fresh) {
		return Without
	}
	return Stale
}

// Against compares a pod with a new pod that the API server returned for the same pod, or for the
// template of its workload. Other webhooks and policies have changed that pod as well. The state is
// Unknown if neither pod has credentials from Lanyard, because the API server does not seem to call
// it.
func (p *Pod) Against(fresh *Pod) Comparison {
	result := Comparison{State: Current}
	if p.OfOthers() {
		result = p.byMeaning(fresh)
	} else if !same(p, fresh) {
		result.State = p.differing(fresh)
	}
	if result.State == Current && len(fresh.Providers) == 0 {
		result.State = Unknown
	}
	return result
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

// comparison makes the new pod that a running one is compared with.
type comparison struct {
	*Comparer
	running *Pod
}

// again repeats the injection: first into the pod as it was created, which it also returns,
// and then into its ephemeral containers. identities contains the identities of the
// ServiceAccount, if another webhook injected the pod.
func (c *comparison) again(unchanged bool, identities []annotations.Identity) (original *pod.Pod, fresh *Pod, decision *mutate.Decision, err error) {
	original = c.running.original(unchanged, identities)
	isEphemeral := func(c pod.Container) bool { return c.Kind == pod.EphemeralContainers }
	created := original.Clone()
	created.Containers = slices.DeleteFunc(created.Containers, isEphemeral)
	decision, err = c.inject(created, nil)
	if err == nil && slices.ContainsFunc(original.Containers, isEphemeral) {
		before := created.Clone()
		for _, container := range original.Containers {
			if isEphemeral(container) {
				created.Containers = append(created.Containers, container)
			}
		}
		_, err = c.inject(created, before)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return original, newPod(created, c.settings), decision, nil
}

// same reports whether a running pod has the credentials of fresh, which was made again from
// the same pod. It ignores fields that the API server or the kubelet adds, and
// ephemeral containers that were not injected, because a new pod has none.
func same(running, fresh *Pod) bool {
	if !slices.Equal(running.Providers, fresh.Providers) || !maps.Equal(running.Files, fresh.Files) ||
		!slices.EqualFunc(running.Tokens, fresh.Tokens, sameToken) || !sameCopies(running.copies, fresh.copies) ||
		!sameVerifier(running.verifier(), fresh.verifier()) {
		return false
	}
	for c, other := range running.pairs(fresh) {
		if other == nil || c.TakesPart != other.TakesPart || !slices.Equal(c.injectedPaths(), other.injectedPaths()) || len(differingVariables(c, other, running.definitions)) > 0 {
			return false
		}
	}
	return true
}

// pairs yields the containers that must be compared, with those of the same name in fresh.
func (p *Pod) pairs(fresh *Pod) func(yield func(c, other *Container) bool) {
	return func(yield func(c, other *Container) bool) {
		for i := range p.Containers {
			c := &p.Containers[i]
			if c.Kind == Ephemeral && !c.TakesPart {
				continue
			}
			if !yield(c, fresh.container(c)) {
				return
			}
		}
	}
}

// container returns the container of the pod with the kind and the name of c, or nil if there is none.
func (p *Pod) container(c *Container) *Container {
	at := slices.IndexFunc(p.Containers, func(o Container) bool { return o.Kind == c.Kind && o.Name == c.Name })
	if at < 0 {
		return nil
	}
	return &p.Containers[at]
}

// sameVerifier compares how two pods verify their credentials. The image may be of another version.
func sameVerifier(a, b *Container) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.read.ArgsText, b.read.ArgsText)
}

// sameToken compares two tokens. The volumes may have different names.
func sameToken(a, b Token) bool {
	a.Volume = b.Volume
	return a == b
}

// sameCopies compares two lists without their order.
func sameCopies(a, b []Token) bool {
	isIn := func(list []Token) func(Token) bool {
		return func(t Token) bool { return !slices.Contains(list, t) }
	}
	return !slices.ContainsFunc(a, isIn(b)) && !slices.ContainsFunc(b, isIn(a))
}

// injectedPaths returns the mount paths of Lanyard's volumes, sorted.
func (c *Container) injectedPaths() []string {
	var paths []string
	for _, m := range c.mounts {
		if m.injected {
			paths = append(paths, string(m.Path))
		}
	}
	slices.Sort(paths)
	return paths
}

// differingVariables returns the names of the providers' variables that two containers do not have
// with the same value.
func differingVariables(a, b *Container, definitions []*annotations.Provider) []string {
	var names []string
	for _, d := range definitions {
		for i := range d.Variables {
			if name := d.Variables[i].Name; !sameVariable(a.variable(name), b.variable(name)) {
				names = append(names, name)
			}
		}
	}
	return names
}

// variable returns the variable of this name, or nil if there is none.
func (c *Container) variable(name string) *Variable { return lastNamed(c.Variables, name) }

// lastNamed returns the last variable of this name, which the kubelet uses, or nil if there is none.
func lastNamed(variables []Variable, name string) *Variable {
	for i := range slices.Backward(variables) {
		if variables[i].Name == name {
			return &variables[i]
		}
	}
	return nil
}

func sameVariable(a, b *Variable) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Value == b.Value && (bytes.Equal(a.From, b.From) || a.IsPodName() && b.IsPodName())
}

// showsOthers reports whether the running pod differs from a new one only in variables that the
// containers may have set themselves, and another container shows that the pod was injected with
// the current values of these variables. created is the pod as it was created.
func (c *comparison) showsOthers(created *pod.Pod, fresh *Pod) bool {
	original := newPod(created, c.settings)
	found := false
	for container, other := range c.running.pairs(fresh) {
		if other == nil {
			return false
		}
		for _, name := range differingVariables(container, other, c.running.definitions) {
			found = true
			own := container.variable(name)
			if own == nil || !own.Injected || !own.ambiguous || !original.gets(name, c.running, fresh) {
				return false
			}
		}
	}
	return found
}

// gets reports whether a new pod has a container that does not set the variable itself, and gets
// the value that it has in the running pod.
func (p *Pod) gets(name string, running, fresh *Pod) bool {
	for c, other := range running.pairs(fresh) {
		v, before := c.variable(name), p.container(c)
		if v != nil && v.Injected && other != nil && sameVariable(v, other.variable(name)) && before != nil && before.variable(name) == nil {
			return true
		}
	}
	return false
}
