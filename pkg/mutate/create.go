// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// create injects the identities into a new pod. The error is a *reason.Error, for which the
// pod must be denied.
func create(p *Pod, selection *annotations.Pod, injection *encodedInjection) (Decision, error) {
	m := newMutation(p, selection, injection)
	if err := p.readLists(); err != nil {
		return Decision{}, err
	}
	exists, err := m.chooseVolume()
	if err != nil {
		return Decision{}, err
	}
	m.placeCopies(false)
	missing, err := m.missingAnnotations()
	if err != nil {
		return Decision{}, err
	}
	m.findUnknownNames()
	verified := false
	for i := range m.pod.Containers {
		c := &m.pod.Containers[i]
		if c.Kind == pod.EphemeralContainers {
			continue // the API server denies a new pod with them
		}
		findings := len(m.findings)
		if err := m.plan(c); err != nil {
			return Decision{}, err
		}
		if m.isVerifier(c) {
			verified, m.findings = true, m.findings[:findings] // which are about the other containers
		}
	}
	if len(m.changes.plans) == 0 {
		if !selection.Insists && leavesNothing(m.pod, selection, injection.mountPath) {
			m.findings = slices.Insert(m.findings, 0, nothingLeft)
		}
		return m.decision(), nil
	}
	if err := m.checkPatch(); err != nil {
		return Decision{}, err
	}
	m.addMarks(missing)
	m.changes.marks, m.changes.volumes = missing, m.missingVolumes(exists)
	m.changes.patch.Extend([]byte("/spec/volumes"), m.pod.VolumesText, m.changes.volumes)
	m.addVerifier(verified)
	return m.decision(), nil
}

// mutation is the state of one decision.
type mutation struct {
	*encodedInjection
	pod         *pod.Pod
	changes     *changes
	selection   *annotations.Pod
	tokenVolume *encodedVolume
	copies      []placedCopy
	cleanPath   string // the token mount path, normalized
	findings    []Finding
}

func newMutation(p *Pod, selection *annotations.Pod, injection *encodedInjection) mutation {
	p.changes.reset()
	return mutation{
		encodedInjection: injection, pod: &p.read, changes: &p.changes, selection: selection,
		cleanPath: normalizePath(injection.mountPath, p.read.Windows),
	}
}

// plan contains the additions to one container.
type plan struct {
	container *pod.Container
	// JSON values.
	mounts, variables [][]byte
}

// plan decides what to add to the container. Every selected container gets the mount, which
// marks it as injected.
func (m *mutation) plan(c *pod.Container) error {
	if why := m.selection.LeavesOut(string(c.Name)); why != "" {
		m.add(c.Name, Finding{Reason: reason.ContainerNotSelected, Detail: why})
		return nil
	}
	at, by, err := m.mountAt(c)
	if err != nil {
		return err
	}
	if at == taken {
		m.add(c.Name, m.occupied(by, m.cleanPath, "the token", "gets no identity"))
		return nil
	}
	m.changes.plans = append(m.changes.plans, plan{container: c, mounts: m.missingMounts(c, at), variables: m.missingVariables(c)})
	return nil
}

// Limits for the names in an annotation, which bound text and time.
const (
	maxShownContainers    = 8
	maxComparedContainers = 32
	maxComparedNames      = 8
)

// findUnknownNames adds findings about names in the pod's annotations that no container has.
// Each suggests the nearest name, and the first lists all containers. Names after the first
// maxTexts share one finding.
func (m *mutation) findUnknownNames() {
	listed := slices.Concat(m.selection.Containers, m.selection.SkipContainers)
	if len(listed) == 0 {
		return
	}
	has := map[string]bool{}
	var names []string
	for i := range m.pod.Containers {
		name := string(m.pod.Containers[i].Name)
		has[name] = true
		names = append(names, name)
	}
	unknown := slices.DeleteFunc(listed, func(name string) bool { return has[name] })
	m.findings = slices.Grow(m.findings, min(len(unknown), maxTexts+1))
	for i, name := range unknown {
		if i == maxTexts {
			m.add([]byte(name), Finding{
				Reason: reason.ContainerNotFound, Field: m.listOf(name), Got: texts.Cut(name, texts.MaxShown),
				Detail: fmt.Sprintf("an annotation names it, and %d more that the pod does not have", len(unknown)-i-1), Fix: notFoundFix,
			})
			return
		}
		nearest := ""
		if i < maxComparedNames {
			nearest = texts.Nearest(name, names[:min(len(names), maxComparedContainers)])
		}
		detail := "an annotation names it, but the pod has no such container"
		switch {
		case i == 0 && nearest != "":
			detail += fmt.Sprintf(": did you mean %q? Its containers are %s", nearest, shownNames(names))
		case i == 0 && len(names) > 0:
			detail += ": its containers are " + shownNames(names)
		case nearest != "":
			detail += fmt.Sprintf(": did you mean %q?", nearest)
		}
		m.add([]byte(name), Finding{
			Reason: reason.ContainerNotFound, Field: m.listOf(name), Got: texts.Cut(name, texts.MaxShown), Want: nearest, Detail: detail,
			Fix: notFoundFix,
		})
	}
}

// notFoundFix is the fix for an unknown container name.
const notFoundFix = "Correct the name in the annotation."

// listOf returns the field of the annotation that contains the name.
func (m *mutation) listOf(name string) string {
	if slices.Contains(m.selection.Containers, name) {
		return containersField
	}
	return skipContainersField
}

// shownNames formats the names of containers for a message.
func shownNames(names []string) string {
	var shown []string
	for i, name := range names {
		if i == maxShownContainers {
			return strings.Join(shown, ", ") + fmt.Sprintf(" and %d more", len(names)-i)
		}
		shown = append(shown, strconv.Quote(texts.Cut(name, texts.MaxShown)))
	}
	return strings.Join(shown, ", ")
}

// maxPatchBytes limits the additions to all containers of a pod: an API server
// stores objects of up to 1.5 MiB.
const maxPatchBytes = 3 << 19

// maxPathBytes is the length of the longest path to a list of a container.
const maxPathBytes = len("/spec/ephemeralContainers/511/volumeMounts")

// checkPatch returns an error if the additions to the containers are too large.
func (m *mutation) checkPatch() error {
	if err := m.checkSize(); err != nil {
		return &reason.Error{Reason: reason.TooLarge, Err: fmt.Errorf("serviceaccount %q: %w", m.pod.ServiceAccountName, err)}
	}
	if len(m.changes.plans)*m.maxContainerBytes > maxPatchBytes {
		return &reason.Error{Reason: reason.TooLarge, Err: fmt.Errorf("%w: the patch for its %d containers may need more than %d bytes", pod.ErrTooLarge, len(m.changes.plans), maxPatchBytes)}
	}
	return nil
}

// Patch is a JSON Patch for a pod. Bytes encodes it, so that a program can limit the memory
// of all patches. It is valid until the Pod is reused.
type Patch struct {
	changes        *changes // the plans for the containers, and the rest of the patch
	containerBytes int      // that the plans need
}

// Size returns an upper bound of the length of the patch.
func (p *Patch) Size() int { return p.changes.patch.Size() + p.containerBytes }

// Bytes returns the JSON of the patch, or nil if p is nil.
func (p *Patch) Bytes() []byte {
	if p == nil {
		return nil
	}
	patch := &p.changes.patch
	patch.Grow(p.containerBytes)
	path := make([]byte, 0, maxPathBytes)
	for _, plan := range p.changes.plans {
		c := plan.container
		patch.Extend(appendPath(path, c, "/volumeMounts"), c.MountsText, plan.mounts)
		patch.Extend(appendPath(path, c, "/env"), c.EnvText, plan.variables)
	}
	p.changes.plans, p.containerBytes = p.changes.plans[:0], 0 // they are in the patch
	return patch.Bytes()
}

// appendPath appends the JSON Pointer to a list of the container.
func appendPath(path []byte, c *pod.Container, list string) []byte {
	path = append(append(append(path, "/spec/"...), c.Kind...), '/')
	return append(strconv.AppendInt(path, int64(c.Index), 10), list...)
}

// decision returns the decision. If no container gets an identity, the reason of a finding
// becomes the reason of the pod.
func (m *mutation) decision() Decision {
	d := Decision{Patch: m.patch(), Findings: m.findings}
	switch {
	case d.Patch != nil:
		d.Reason = reason.Injected
	case len(m.changes.plans) > 0:
		d.Reason = reason.AlreadyInjected
	case len(m.findings) > 0:
		d.Reason = m.findings[0].Reason
	default:
		d.Reason = reason.NoContainer
	}
	return d
}

// patch returns the patch, or nil if the pod needs no change.
func (m *mutation) patch() *Patch {
	adds := func(p plan) bool { return len(p.mounts)+len(p.variables) > 0 }
	if m.changes.patch.Empty() && !slices.ContainsFunc(m.changes.plans, adds) {
		return nil
	}
	return &Patch{m.changes, len(m.changes.plans) * m.maxContainerBytes}
}
