// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// markInjected marks Lanyard's variables: the longest end of the list that has the providers'
// variables, in their order, with values that Lanyard could have written. Lanyard adds no variable
// that the container has already. It ignores other variables at the end, which another webhook may
// have added.
func (m mountedAt) markInjected(definitions []*annotations.Provider) {
	variables := m.variables
	type known struct {
		*annotations.Provider
		*annotations.Variable
	}
	var before []known
	for _, d := range definitions {
		for i := range d.Variables {
			if v := &d.Variables[i]; m.couldGive(v, d) {
				before = append(before, known{d, v})
			}
		}
	}
	all := len(before)
	isRepeated := func(i int) bool {
		return slices.ContainsFunc(variables[:i], func(v Variable) bool { return v.Name == variables[i].Name })
	}
	for i, v := range slices.Backward(variables) {
		at := slices.IndexFunc(before, func(k known) bool { return k.Variable.Name == v.Name })
		if at < 0 && len(before) == all {
			continue
		}
		if at < 0 || isRepeated(i) || v.IsPodName() && before[at].PodName == "" ||
			!v.IsPodName() && (v.From != nil || !fits(v.Value, before[at].Value, before[at].Provider, m)) {
			return
		}
		variables[i].Injected = true
		before = before[:at]
	}
}

// markAmbiguous marks the injected variables before the first one that points to a file in
// the token volume, which no container sets itself.
func (m mountedAt) markAmbiguous(definitions []*annotations.Provider) {
	for i := range m.variables {
		if v := &m.variables[i]; v.Injected {
			if slices.ContainsFunc(definitions, func(d *annotations.Provider) bool { return m.pointsInto(v, d) }) {
				return
			}
			v.ambiguous = true
		}
	}
}

// IsPodName reports whether the value is the name of the pod.
func (v *Variable) IsPodName() bool {
	return v.read != nil && string(v.read.FieldPath) == annotations.PodNameField
}

// placeholder matches a placeholder of a template in which QuoteMeta has escaped the
// braces.
var placeholder = regexp.MustCompile(`\\\{([a-z0-9-]+)\\\}`)

// fits reports whether the template of a variable can result in the value.
func fits(value, template string, d *annotations.Provider, m mountedAt) bool {
	value = strings.ReplaceAll(value, "$$", "$")
	if name, found := onlyPlaceholder(template); found {
		return isValue(name, value, d, m)
	}
	if !strings.Contains(template, "{") {
		return value == template
	}
	quoted := regexp.QuoteMeta(template)
	match := regexp.MustCompile("^" + placeholder.ReplaceAllString(quoted, "(.+)") + "$").FindStringSubmatch(value)
	if match == nil {
		return false
	}
	for i, name := range placeholder.FindAllStringSubmatch(quoted, -1) {
		if !isValue(name[1], match[i+1], d, m) {
			return false
		}
	}
	return true
}

// onlyPlaceholder returns the name of the placeholder that is the whole template. It reports false
// for any other template.
func onlyPlaceholder(template string) (name string, found bool) {
	name, found = strings.CutPrefix(template, "{")
	if !found || strings.Index(name, "}") != len(name)-1 {
		return "", false
	}
	return name[:len(name)-1], true
}

// isValue reports whether a placeholder of this name can have the value.
func isValue(name, value string, d *annotations.Provider, m mountedAt) bool {
	if path, found := m.paths(d)[name]; found {
		return value == path
	}
	if p := d.Parameter(name); p != nil {
		read, err := p.Read(value)
		return err == nil && read == value
	}
	return value != "" && texts.IsVisible(value)
}

// mountedAt describes a container with Lanyard's tokens, and where they are mounted.
type mountedAt struct {
	path      string // of the token volume, with slashes and without a drive
	windows   bool
	tokens    []Token           // of the container
	variables []Variable        // of the container
	files     map[string]string // of the pod, by provider
}

// variable returns the variable of the container with this name, or nil if there is none.
func (m mountedAt) variable(name string) *Variable { return lastNamed(m.variables, name) }

// tokenFile is the name of the token's path in annotations.Values.
const tokenFile = "token-file"

// paths returns the values that are paths of Lanyard's files, as the container sees them.
func (m mountedAt) paths(d *annotations.Provider) annotations.Values {
	values := annotations.Values{tokenFile: annotations.PathInContainer(m.path+"/"+d.TokenPath, m.windows)}
	if d.CredentialFile != nil {
		values["credential-file"] = annotations.PathInContainer(m.path+"/"+d.CredentialFile.Path, m.windows)
	}
	return values
}

// hasVariables reports whether Lanyard gave the provider's variables to the container. A container
// that points to credentials of its own gets none of them.
func (m mountedAt) hasVariables(d *annotations.Provider) bool {
	return slices.ContainsFunc(m.variables, func(v Variable) bool { return m.pointsInto(&v, d) || m.isCopy(v.Value, d) })
}

// couldGive reports whether Lanyard could have set the provider's variable in the container.
// Lanyard does not set a Direct variable in a container that selects a profile, nor a
// Credential variable in a container that lacks the variable in TokenAloneNeeds.
func (m mountedAt) couldGive(v *annotations.Variable, d *annotations.Provider) bool {
	switch {
	case v.Direct && m.selectsProfile(d):
		return false
	case v.Credential && d.TokenAloneNeeds != "":
		return m.variable(d.TokenAloneNeeds) != nil
	}
	return true
}

// selectsProfile reports whether the container selects a profile of Lanyard's file, and not of a
// file of its own.
func (m mountedAt) selectsProfile(d *annotations.Provider) bool {
	return d.Profiles != nil && m.files[d.Name] != "" &&
		slices.ContainsFunc(d.Profiles.Selectors, func(name string) bool {
			v := m.variable(name)
			return v != nil && (v.Value != "" || v.From != nil)
		}) &&
		!slices.ContainsFunc(d.Variables, func(known annotations.Variable) bool {
			v := m.variable(known.Name)
			return known.Profiles && v != nil && (v.From != nil || !fits(v.Value, known.Value, d, m))
		})
}

// isCopy reports whether a path is the path of a copy of the provider's token, which Lanyard or
// another webhook mounted.
func (m mountedAt) isCopy(path string, d *annotations.Provider) bool {
	return d.CopyVolume != "" && slices.ContainsFunc(m.tokens, func(t Token) bool { return t.Volume == d.CopyVolume && t.File == slashes(path) })
}

// pointsInto reports whether a variable points to a file of the provider in the token volume.
func (m mountedAt) pointsInto(v *Variable, d *annotations.Provider) bool {
	return slices.ContainsFunc(d.Variables, func(known annotations.Variable) bool {
		return (known.Credential || known.Profiles) && known.Name == v.Name && m.couldGive(&known, d) && fits(v.Value, known.Value, d, m)
	})
}

// pointingTo returns the providers whose variables point to a file in the token volume.
func pointingTo(variables []Variable, definitions []*annotations.Provider, mountPath string) []string {
	var names []string
	for _, d := range definitions {
		if slices.ContainsFunc(d.Variables, func(v annotations.Variable) bool {
			return (v.Credential || v.Profiles) && slices.ContainsFunc(variables, func(set Variable) bool {
				return set.Name == v.Name && strings.HasPrefix(slashes(set.Value), mountPath+"/")
			})
		}) {
			names = append(names, d.Name)
		}
	}
	return names
}
