// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"strings"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/pkg/provider"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// missingVariables returns the encoded variables that the container lacks. What
// the container sets itself stays.
func (m *mutation) missingVariables(c *container) *jsonpatch.Fragment {
	if !m.setsKnown(c) {
		return m.environment
	}
	var missing [][]byte
	for i := range m.providers {
		p := &m.providers[i]
		if own := ownCredentials(c, p); len(own) > 0 {
			m.addFinding(reason.EnvironmentTaken, c, "it sets "+strings.Join(own, ", ")+" itself and keeps its own "+p.Name+" credentials")
			continue
		}
		if shadows := setsAny(c, p.Shadows); len(shadows) > 0 {
			m.addFinding(reason.EnvironmentShadowed, c, "it sets "+strings.Join(shadows, ", ")+", which SDKs may prefer to the injected "+p.Name+" identity")
		}
		for j, v := range p.Variables {
			if c.variable(v.Name) == nil && !setsGroup(c, p, v.Group) {
				missing = append(missing, p.variables[j])
			}
		}
	}
	return jsonpatch.NewFragment(missing...)
}

// setsKnown reports whether the container sets any variable that matters. Most
// containers do not.
func (m *mutation) setsKnown(c *container) bool {
	for i := range c.vars {
		if _, known := m.known[string(c.vars[i].name)]; known {
			return true
		}
	}
	return false
}

// ownCredentials returns the names of the variables that point to a credential of
// the container's own. The copy of the token is not.
func ownCredentials(c *container, p *encodedProvider) []string {
	var own []string
	for _, v := range p.Variables {
		if !v.Credential {
			continue
		}
		if got := c.variable(v.Name); got != nil && (got.derived || string(got.value) != v.Value && !pointsToCopy(got, p)) {
			own = append(own, v.Name)
		}
	}
	return own
}

// pointsToCopy reports whether the variable is the path of the copy of the token.
func pointsToCopy(got *envVar, p *encodedProvider) bool {
	return p.Copy.File != "" && string(got.value) == p.Copy.File
}

// setsAny returns those of the names that the container sets.
func setsAny(c *container, names []string) []string {
	var set []string
	for _, name := range names {
		if c.variable(name) != nil {
			set = append(set, name)
		}
	}
	return set
}

// setsGroup reports whether the container sets a variable of the group.
func setsGroup(c *container, p *encodedProvider, group string) bool {
	for _, v := range p.Variables {
		if group != "" && v.Group == group && c.variable(v.Name) != nil {
			return true
		}
	}
	return false
}

func encodeEnvVar(v provider.EnvVar) []byte {
	text := append([]byte(nil), `{"name":`...)
	text = jsonscan.AppendString(text, v.Name)
	text = append(text, `,"value":`...)
	text = jsonscan.AppendString(text, v.Value)
	return append(text, '}')
}
