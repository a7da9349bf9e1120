// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/base64parts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// Names of the projected volume: the usual one, and the one it takes where the
// pod uses the usual one for something else.
const (
	VolumeName         = "bound-sa-token"
	FallbackVolumeName = "lanyard-bound-sa-token"
)

// Result is what became of a pod.
type Result struct {
	// Patch is a JSON Patch, nil where nothing has to be added.
	Patch []byte
	// PatchParts are those of the patch that are the same in others.
	PatchParts []base64parts.Part
	// Reason sums the result up in one word.
	Reason reason.Reason
	// Providers names those that the patch gives to some container, sorted. The
	// list may be one that others have too.
	Providers []string
	// Findings are what somebody should know, in the containers' order.
	Findings []Finding
}

// Finding is a reason that concerns one container.
type Finding struct {
	Reason    reason.Reason
	Container string
	// Detail says what was found, for a person. It holds names, not values.
	Detail string
}

// String is the finding as an admission warning shows it.
func (f Finding) String() string {
	return fmt.Sprintf("%s: container %q: %s", f.Reason, f.Container, f.Detail)
}

// ConflictError refuses a pod that cannot carry the injection although it asks
// for it.
type ConflictError struct {
	Reason reason.Reason
	Err    *field.Error
}

func (e *ConflictError) Error() string { return e.Err.Error() }

// Unwrap gives the field's error.
func (e *ConflictError) Unwrap() error { return e.Err }

// Create works out what a pod that is being created has to be given. Its error
// is a *ConflictError, or wraps ErrTooLarge.
//
// The patch is written into room, where that is large enough; room may be nil.
func Create(pod *Pod, selection *annotations.Pod, addition *Addition, room []byte) (Result, error) {
	m := newMutation(pod, selection, addition)
	name, exists, err := m.chooseVolume()
	if err != nil {
		return Result{}, err
	}
	m.tokens = name
	missing, err := m.missingAnnotations()
	if err != nil {
		return Result{}, err
	}
	m.findUnknownNames()
	plans := pod.plans[:0]
	for i := range pod.containers {
		// The apiserver refuses ephemeral containers in a new pod.
		if pod.containers[i].field != ephemeralContainers {
			plans = m.append(plans, &pod.containers[i])
		}
	}
	pod.plans = plans
	if len(plans) == 0 {
		return m.result(patch{}, plans), nil
	}
	p := patch{buf: room[:0], parts: make([]base64parts.Part, 0, 2+2*len(plans))}
	m.annotate(&p, missing)
	if !exists {
		p.grow([]byte("/spec/volumes"), pod.volumes, m.volumeElements(name))
	}
	if err := m.apply(&p, plans); err != nil {
		return Result{}, err
	}
	return m.result(p, plans), nil
}

// AddEphemeral works out what new ephemeral containers of a running pod have
// to be given: those that old, the pod before, does not have. A running pod's
// volumes and annotations stay as they are, so its own volume has to hold what
// the containers need. Its error wraps ErrTooLarge.
func AddEphemeral(pod, old *Pod, selection *annotations.Pod, addition *Addition, room []byte) (Result, error) {
	m := newMutation(pod, selection, addition)
	var plans []plan
	name, ready := m.runningVolume()
	m.tokens = name
	for i := range pod.containers {
		c := &pod.containers[i]
		if c.field != ephemeralContainers || old.hasEphemeral(c.name) {
			continue
		}
		if !ready && m.selects(c) {
			m.find(reason.VolumeMissing, c, "the running pod has no volume for its service account's identity of today, and cannot get one; create the pod anew to use it")
			continue
		}
		plans = m.append(plans, c)
	}
	p := patch{buf: room[:0]}
	if err := m.apply(&p, plans); err != nil {
		return Result{}, err
	}
	return m.result(p, plans), nil
}

// mutation is one pod on its way.
type mutation struct {
	*Addition
	pod       *Pod
	selection *annotations.Pod
	mountPath string // clean
	tokens    string // the name of the token volume
	findings  []Finding
	added     uint // providers, by their index, a bit for each
}

// plan is what one container is given.
type plan struct {
	container   *container
	mount       bool
	environment elements
}

func newMutation(pod *Pod, selection *annotations.Pod, addition *Addition) mutation {
	return mutation{Addition: addition, pod: pod, selection: selection, mountPath: addition.cleanPath[pod.Windows]}
}

func (m *mutation) selects(c *container) bool {
	if len(m.selection.Containers) == 0 && len(m.selection.SkipContainers) == 0 {
		return true
	}
	return m.selection.Selects(string(c.name))
}

func (m *mutation) find(r reason.Reason, c *container, format string, args ...any) {
	m.findings = append(m.findings, Finding{Reason: r, Container: string(c.name), Detail: fmt.Sprintf(format, args...)})
}

// result sums up. A container's finding speaks for the pod only where no
// container has an identity.
func (m *mutation) result(p patch, plans []plan) Result {
	r := Result{Patch: p.bytes(), PatchParts: p.parts, Findings: m.findings, Providers: m.providersOf(m.added)}
	switch {
	case r.Patch != nil:
		r.Reason = reason.Injected
	case len(plans) > 0:
		r.Reason = reason.AlreadyInjected
	case len(m.findings) > 0:
		r.Reason = m.findings[0].Reason
	default:
		r.Reason = reason.NoContainer
	}
	return r
}

// providersOf names the providers, a bit for each.
func (m *mutation) providersOf(added uint) []string {
	if added == m.allProviders() {
		return m.names
	}
	var names []string
	for i, name := range m.names {
		if added&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (m *mutation) allProviders() uint { return 1<<len(m.names) - 1 }

// chooseVolume gives the name of the token volume and whether the pod has it.
func (m *mutation) chooseVolume() (name string, exists bool, err error) {
	for _, name := range []string{VolumeName, FallbackVolumeName} {
		v, exists := m.pod.volumesByName[name]
		if !exists || m.holds(v) {
			return name, exists, nil
		}
	}
	return "", false, &ConflictError{
		Reason: reason.VolumeNameTaken,
		Err: field.Duplicate(field.NewPath("spec", "volumes").Key(FallbackVolumeName),
			fmt.Sprintf("%s and %s are both used for something else; rename one of the two", VolumeName, FallbackVolumeName)),
	}
}

// runningVolume gives the volume of a running pod that was injected with the
// identity that its account has today.
func (m *mutation) runningVolume() (name string, ready bool) {
	if m.pod.Annotations[m.keys.IdentityHash] != m.injection.Hash {
		return "", false
	}
	for _, name := range []string{VolumeName, FallbackVolumeName} {
		if v, exists := m.pod.volumesByName[name]; exists && m.holds(v) {
			return name, true
		}
	}
	return "", false
}

// holds says whether v projects every token and file of the injection. How
// long the tokens live is the volume's own affair.
func (m *mutation) holds(v volume) bool {
	for _, p := range m.injection.Providers {
		if !slices.Contains(v.tokens, tokenSource{audience: p.Token.Audience, path: p.Token.Path}) {
			return false
		}
		if p.CredentialFile.Path != "" &&
			!slices.Contains(v.files, fileSource{fieldPath: m.credentialFieldPath, path: p.CredentialFile.Path}) {
			return false
		}
	}
	return true
}

// missingAnnotations gives those of Lanyard's annotations that the pod does
// not have. One that it has must be as Lanyard would write it: a pod that was
// copied with the marks of another identity would be taken for injected.
func (m *mutation) missingAnnotations() ([]annotation, error) {
	if len(m.pod.Annotations) == 0 {
		return m.annotations, nil
	}
	var missing []annotation
	for _, a := range m.annotations {
		switch got, exists := m.pod.Annotations[a.key]; {
		case !exists:
			missing = append(missing, a)
		case got != a.value:
			return nil, m.foreign(a, got)
		}
	}
	return missing, nil
}

// foreign refuses the pod for an annotation that is not as Lanyard would write
// it. A credential file is not shown: it would be logged.
func (m *mutation) foreign(a annotation, got string) error {
	const (
		advice   = "take out what was injected into the pod that this one was copied from"
		maxShown = 64 // more than Lanyard writes
	)
	path := field.NewPath("metadata", "annotations").Key(a.key)
	err := field.Invalid(path, got[:min(len(got), maxShown)], fmt.Sprintf("is written by Lanyard alone, and for this pod's service account it would be %q; %s", a.value, advice))
	if a.key == m.keys.GCPCredentials {
		err = field.Forbidden(path, "is written by Lanyard alone, and for this pod's service account it would be another; "+advice)
	}
	return &ConflictError{Reason: reason.ForeignInjection, Err: err}
}

// findUnknownNames tells of names in the pod's containers and skip-containers
// annotations that no container has.
func (m *mutation) findUnknownNames() {
	for _, name := range slices.Concat(m.selection.Containers, m.selection.SkipContainers) {
		if !slices.ContainsFunc(m.pod.containers, func(c container) bool { return string(c.name) == name }) {
			m.find(reason.ContainerNotFound, &container{name: []byte(name)}, "an annotation names it, but the pod has no such container")
		}
	}
}

// append adds the container's plan, unless the container is left out.
func (m *mutation) append(plans []plan, c *container) []plan {
	if !m.selects(c) {
		m.find(reason.ContainerNotSelected, c, "the pod's annotations leave it out")
		return plans
	}
	groups, added, takesPart := m.missing(c)
	if !takesPart {
		return plans
	}
	mounted, taken := m.pod.at(c, m.mountPath, m.tokens)
	if taken != nil {
		m.find(reason.MountPathTaken, c, "the token mount path is taken by %v; it gets no identity", taken)
		return plans
	}
	m.added |= added
	return append(plans, plan{container: c, mount: !mounted, environment: m.environmentOf(groups)})
}

// missing gives the groups that the container lacks and the providers of which
// it lacks any, a bit for each, and whether the container takes part.
func (m *mutation) missing(c *container) (groups, added uint, takesPart bool) {
	if !m.setsAnyKnown(c) {
		return m.allGroups(), m.allProviders(), len(m.names) > 0
	}
	first := 0 // the provider's first group
	for i := range m.injection.Providers {
		p := &m.injection.Providers[i]
		add, ok := m.missingGroups(c, p, first)
		takesPart = takesPart || ok
		if add != 0 {
			added |= 1 << i
		}
		groups |= add
		first += 1 + len(p.Settings)
	}
	return groups, added, takesPart
}

func (m *mutation) allGroups() uint { return 1<<len(m.groups) - 1 }

// setsAnyKnown is false for most containers: nothing that they set matters.
func (m *mutation) setsAnyKnown(c *container) bool {
	for i := c.vars.from; i < c.vars.to; i++ {
		if _, known := m.known[string(m.pod.vars[i].name)]; known {
			return true
		}
	}
	return false
}

// environmentOf gives the variables of groups, a bit for each.
func (m *mutation) environmentOf(groups uint) elements {
	if groups == m.allGroups() {
		return m.environment
	}
	var each [][]byte
	for i := range m.groups {
		if groups&(1<<i) != 0 {
			each = append(each, m.groups[i].each...)
		}
	}
	return newElements(each...)
}

// missingGroups gives those of a provider's groups that the container lacks, a
// bit for each, and whether the container takes part: one that sets a
// credential variable to something of its own does not.
func (m *mutation) missingGroups(c *container, p *provider.Provider, first int) (groups uint, ok bool) {
	set, same := m.credentials(c, p)
	if len(set) > 0 && same < len(p.Credentials) {
		m.find(reason.EnvironmentTaken, c, "it sets %s itself and keeps its own %s credentials", strings.Join(set, ", "), p.Name)
		return 0, false
	}
	if len(set) == 0 {
		groups |= 1 << first
	}
	for i, variables := range p.Settings {
		if !m.setsAny(c, variables) {
			groups |= 1 << (first + 1 + i)
		}
	}
	var shadows []string
	for _, name := range p.Shadowing {
		if m.pod.variable(c, name) != nil {
			shadows = append(shadows, name)
		}
	}
	if len(shadows) > 0 {
		m.find(reason.EnvironmentShadowed, c, "it sets %s, which SDKs may prefer to the injected %s identity", strings.Join(shadows, ", "), p.Name)
	}
	return groups, true
}

// credentials names the provider's credential variables that the container
// sets, and counts those that are as Lanyard would set them.
func (m *mutation) credentials(c *container, p *provider.Provider) (set []string, same int) {
	for _, v := range p.Credentials {
		got := m.pod.variable(c, v.Name)
		if got == nil {
			continue
		}
		set = append(set, v.Name)
		if !got.derived && string(got.value) == v.Value {
			same++
		}
	}
	return set, same
}

func (m *mutation) setsAny(c *container, variables []provider.Variable) bool {
	for _, v := range variables {
		if m.pod.variable(c, v.Name) != nil {
			return true
		}
	}
	return false
}

func (p *Pod) hasEphemeral(name []byte) bool {
	return slices.ContainsFunc(p.containers, func(c container) bool {
		return c.field == ephemeralContainers && bytes.Equal(c.name, name)
	})
}
