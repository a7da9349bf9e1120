// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// markInjected marks Lanyard's variables: the longest end of the list that has the
// providers' variables, in their order, with values that Lanyard could have written.
func markInjected(variables []Variable, definitions []*annotations.Provider, mountPath string) {
	type known struct {
		*annotations.Provider
		annotations.Variable
	}
	var before []known
	for _, d := range definitions {
		for _, v := range d.Variables {
			before = append(before, known{d, v})
		}
	}
	for i, v := range slices.Backward(variables) {
		at := slices.IndexFunc(before, func(k known) bool { return k.Variable.Name == v.Name })
		if at < 0 || v.IsPodName() && before[at].PodName == "" ||
			!v.IsPodName() && (v.From != nil || !fits(v.Value, before[at].Value, before[at].Provider, mountPath)) {
			return
		}
		variables[i].Injected = true
		before = before[:at]
	}
}

// IsPodName reports whether the value is the name of the pod.
func (v *Variable) IsPodName() bool {
	var from struct {
		Field *struct {
			Path string `json:"fieldPath"`
		} `json:"fieldRef"`
	}
	return v.From != nil && json.Unmarshal(v.From, &from) == nil && from.Field != nil && from.Field.Path == provider.PodNameField
}

// placeholder matches a placeholder of a template in which QuoteMeta has escaped the
// braces.
var placeholder = regexp.MustCompile(`\\\{([a-z0-9-]+)\\\}`)

// fits reports whether the template of a variable can result in the value.
func fits(value, template string, d *annotations.Provider, mountPath string) bool {
	value = strings.ReplaceAll(value, "$$", "$")
	if name, found := strings.CutPrefix(template, "{"); found && strings.Index(name, "}") == len(name)-1 {
		return isValue(name[:len(name)-1], value, d, mountPath)
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
		if !isValue(name[1], match[i+1], d, mountPath) {
			return false
		}
	}
	return true
}

// isValue reports whether a placeholder of this name can have the value.
func isValue(name, value string, d *annotations.Provider, mountPath string) bool {
	if path, found := paths(d, mountPath)[name]; found {
		return Slashes(value) == path
	}
	for i := range d.Parameters {
		if p := &d.Parameters[i]; p.Name == name {
			read, err := p.Read(value)
			return err == nil && read == value
		}
	}
	return value != "" && texts.IsVisible(value)
}

// paths returns the values that are paths of Lanyard's files, with slashes and without a drive.
func paths(d *annotations.Provider, mountPath string) annotations.Values {
	values := annotations.Values{"token-file": mountPath + "/" + d.TokenPath}
	if d.CredentialFile != nil {
		values["credential-file"] = mountPath + "/" + d.CredentialFile.Path
	}
	return values
}

// pointingTo returns the providers whose variables point to a file in the token volume.
func pointingTo(variables []Variable, definitions []*annotations.Provider, mountPath string) []string {
	var names []string
	for _, d := range definitions {
		if slices.ContainsFunc(d.Variables, func(v annotations.Variable) bool {
			return (v.Credential || v.Profiles) && slices.ContainsFunc(variables, func(set Variable) bool {
				return set.Name == v.Name && strings.HasPrefix(Slashes(set.Value), mountPath+"/")
			})
		}) {
			names = append(names, d.Name)
		}
	}
	return names
}
