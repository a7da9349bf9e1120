// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxNamespaceBytes limits the annotations of a namespace, keys and values together.
// Longer ones are invalid and not kept.
const MaxNamespaceBytes = 16 << 10

// Policy is what the ServiceAccounts of a namespace may ask for. The zero value
// allows everything.
type Policy struct {
	// Allowed are globs: "*" stands for any number of characters, including none.
	// Nil allows everything.
	Allowed []string
}

// guid matches a GUID. Principals have GUIDs in lower case, so ParseNamespace turns
// a GUID in the list to lower case too.
var guid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// ParseNamespace reads the annotations of a namespace.
func ParseNamespace(keys *Keys, annotations map[string]string) (Policy, field.ErrorList) {
	p := parser{keys: keys, annotations: annotations}
	p.denyUnknown([]string{keys.AllowedIdentities}, namespaceHint)
	var policy Policy
	if value, found := annotations[keys.AllowedIdentities]; found {
		allowed, err := splitList(value)
		if err != nil {
			p.invalid(keys.AllowedIdentities, err)
			allowed = []string{} // allows nothing
		}
		for i, glob := range allowed {
			if guid.MatchString(glob) {
				allowed[i] = strings.ToLower(glob)
			}
		}
		policy.Allowed = allowed
	}
	return policy, p.errs
}

// Denied returns the first of the principals that the policy does not allow, and
// reports whether there is one.
func (p *Policy) Denied(principals []string) (string, bool) {
	if p.Allowed == nil {
		return "", false
	}
	for _, name := range principals {
		if !slices.ContainsFunc(p.Allowed, func(glob string) bool { return matches(glob, name) }) {
			return name, true
		}
	}
	return "", false
}

// matches reports whether name matches a glob whose only special character is
// "*". ARNs and resource names have slashes, which "*" of path.Match does not
// match.
func matches(glob, name string) bool {
	parts := strings.Split(glob, "*")
	if len(parts) == 1 {
		return glob == name
	}
	rest, found := strings.CutPrefix(name, parts[0])
	if !found {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, last)
}
