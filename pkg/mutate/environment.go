// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// missingVariables returns the encoded variables to add to the container. The container's own
// variables do not change.
func (m *mutation) missingVariables(c *pod.Container) [][]byte {
	if !m.unnamed() && !m.conditional && !m.setsKnown(c) {
		return m.environment
	}
	var missing [][]byte
	for i := range m.providers {
		p := &m.providers[i]
		if own := ownCredentials(c, p); len(own) > 0 {
			names := strings.Join(own, ", ")
			m.add(c.Name, Finding{
				Reason: reason.EnvironmentTaken, Field: variableFields(own...),
				Detail: "it sets " + names + " itself and keeps its own " + p.Name + " credentials",
				Fix:    "Remove " + names + " from the container to use the injected " + p.Name + " identity.",
			})
			continue
		}
		if p.Needs != "" && !sets(c, p.Needs) {
			m.add(c.Name, Finding{
				Reason: reason.EnvironmentIncomplete, Field: variableFields(p.Needs), Want: "a value",
				Detail: fmt.Sprintf("it does not set %s itself, so it gets the %s token in its volume, but none of the variables: SDKs would fail", p.Needs, p.Name),
				Fix:    "Set " + p.Needs + " in the container if it needs " + p.Name + ".",
			})
			continue
		}
		selects := m.selectsProfile(c, p)
		if empty := emptyVariables(c, p, selects); len(empty) > 0 {
			names := strings.Join(empty, ", ")
			m.add(c.Name, Finding{
				Reason: reason.EnvironmentShadowed, Field: variableFields(empty...), Want: "a value",
				Detail: "it sets " + names + " to an empty value, so SDKs do not find the injected " + p.Name + " identity",
				Fix:    "Remove " + names + " from the container.",
			})
		}
		m.findUnknownProfiles(c, p)
		if shadows := m.shadows(c, p, selects); len(shadows) > 0 {
			names := strings.Join(shadows, ", ")
			m.add(c.Name, Finding{
				Reason: reason.EnvironmentShadowed, Field: variableFields(shadows...),
				Detail: "it sets " + names + ", which SDKs may prefer to the injected " + p.Name + " identity",
				Fix:    "Remove " + names + " from the container.",
			})
		}
		for j, v := range p.Variables {
			if c.Variable(v.Name) == nil && !setsGroup(c, p, v.Group) && !m.overridesChoice(c, p, &v, selects) {
				missing = append(missing, m.encoded(c, p, j))
			}
		}
	}
	return missing
}

// unnamed reports whether a variable needs the name of the pod, but the name is not a valid
// value.
func (m *mutation) unnamed() bool {
	return m.podNames && !provider.PodNameFits(string(m.pod.Name))
}

// encoded returns the provider's variable at index j. If its value is the name of the
// pod, but that is not valid, it returns the variable with its default, and adds a
// finding.
func (m *mutation) encoded(c *pod.Container, p *encodedProvider, j int) []byte {
	v := &p.Variables[j]
	if v.PodName == "" || !m.unnamed() {
		return p.variables[j]
	}
	want := fmt.Sprintf("%d to %d characters", provider.MinSessionName, provider.MaxSessionName)
	m.add(c.Name, Finding{
		Reason: reason.PodNameUnusable, Field: "metadata.name", Got: fmt.Sprintf("%d characters", len(m.pod.Name)), Want: want,
		Detail: fmt.Sprintf("its %s has the default value: the name of the pod must have %s", v.Name, want),
		Fix:    "Use a name of " + want + ".",
	})
	return withValue(v)
}

// setsKnown reports whether the container sets a variable that a provider sets or warns
// about. Most containers do not.
func (m *mutation) setsKnown(c *pod.Container) bool {
	for i := range c.Variables {
		if _, known := m.known[string(c.Variables[i].Name)]; known {
			return true
		}
	}
	return false
}

// ownCredentials returns the names of the variables that point to a credential of
// the container's own.
func ownCredentials(c *pod.Container, p *encodedProvider) []string {
	var own []string
	for i := range p.Variables {
		v := &p.Variables[i]
		if got := c.Variable(v.Name); got != nil && v.IsOwnCredential(got.Value, got.From != nil, v.Value, p.Copy.File) {
			own = append(own, v.Name)
		}
	}
	return own
}

// emptyVariables returns the needed variables that the container sets to an empty value. selects
// reports whether the container selects a profile, which needs no direct variables.
func emptyVariables(c *pod.Container, p *encodedProvider, selects bool) []string {
	var empty []string
	for i := range p.Variables {
		if v := &p.Variables[i]; v.Needed && (!v.Direct || !selects) && c.Variable(v.Name) != nil && !sets(c, v.Name) {
			empty = append(empty, v.Name)
		}
	}
	return empty
}

// shadows returns the variables of the container that SDKs may prefer to the injected
// identity, except those that select a profile in Lanyard's file or point to it.
func (m *mutation) shadows(c *pod.Container, p *encodedProvider, selects bool) []string {
	var set []string
	for i := range p.Shadows {
		name := p.Shadows[i].Name
		got := c.Variable(name)
		if got == nil || !p.Shadows[i].Harms(string(got.Value), got.From != nil) || selects && slices.Contains(p.Selectors, name) {
			continue
		}
		if i := slices.IndexFunc(p.Variables, func(v annotations.Variable) bool { return v.Name == name }); i < 0 || m.setsOther(c, &p.Variables[i]) {
			set = append(set, name)
		}
	}
	return set
}

// setsOther reports whether the container sets the variable to another value than Lanyard would.
func (m *mutation) setsOther(c *pod.Container, v *annotations.Variable) bool {
	got := c.Variable(v.Name)
	if got == nil || v.PodName != "" && !m.unnamed() && string(got.FieldPath) == annotations.PodNameField {
		return false
	}
	return got.From != nil || string(got.Value) != v.Value
}

// sets reports whether the container sets the variable to a non-empty value. SDKs treat an
// empty value as unset.
func sets(c *pod.Container, name string) bool {
	got := c.Variable(name)
	return got != nil && (got.From != nil || len(got.Value) > 0)
}

// selectsProfile reports whether the container selects a profile in Lanyard's file, not in
// its own.
func (m *mutation) selectsProfile(c *pod.Container, p *encodedProvider) bool {
	return slices.ContainsFunc(p.Selectors, func(name string) bool { return sets(c, name) }) &&
		!slices.ContainsFunc(p.Variables, func(v annotations.Variable) bool { return v.Profiles && m.setsOther(c, &v) })
}

// findUnknownProfiles adds a finding if the container selects a profile that the
// ServiceAccount does not have: SDKs then find no credentials.
func (m *mutation) findUnknownProfiles(c *pod.Container, p *encodedProvider) {
	if !m.selectsProfile(c, p) {
		return
	}
	for _, name := range p.Selectors {
		if got := c.Variable(name); sets(c, name) && got.From == nil && !slices.Contains(p.Profiles, string(got.Value)) {
			selected, profiles := texts.Cut(got.Value, texts.MaxShown), strings.Join(p.Profiles, ", ")
			m.add(c.Name, Finding{
				Reason: reason.EnvironmentShadowed, Field: variableFields(name), Got: selected, Want: profiles,
				Detail: fmt.Sprintf("its %s selects the profile %q, and the %s profiles of its ServiceAccount are %s", name, selected, p.Name, profiles),
				Fix:    "Select one of these profiles, or add the profile to the ServiceAccount.",
			})
		}
	}
}

// overridesChoice reports whether the variable would override the identity that the container
// chose: by a profile, or by its own variable, to which some SDKs prefer the file with the
// profiles.
func (m *mutation) overridesChoice(c *pod.Container, p *encodedProvider, v *annotations.Variable, selects bool) bool {
	switch {
	case v.Direct:
		return selects
	case v.Profiles:
		return !selects && slices.ContainsFunc(p.Variables, func(other annotations.Variable) bool { return other.Direct && m.setsOther(c, &other) })
	}
	return false
}

// setsGroup reports whether the container sets a variable of the group.
func setsGroup(c *pod.Container, p *encodedProvider, group string) bool {
	return group != "" && (slices.ContainsFunc(p.Variables, func(v annotations.Variable) bool { return v.Group == group && c.Variable(v.Name) != nil }) ||
		slices.ContainsFunc(p.Synonyms[group], func(name string) bool { return c.Variable(name) != nil }))
}
