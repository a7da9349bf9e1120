// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Policy is what the administrator of a namespace lets its accounts ask for.
// The zero value allows everything.
type Policy struct {
	// Allowed are globs: "*" stands for any characters, none included. Where
	// it is nil, nothing is refused.
	Allowed []string
}

// ParseNamespace reads the annotations of a namespace.
func ParseNamespace(keys *Keys, annotations map[string]string) (Policy, field.ErrorList) {
	p := parser{keys: keys, annotations: annotations}
	p.refuseUnknown([]string{keys.AllowedIdentities}, namespaceHint)
	var policy Policy
	if value, found := annotations[keys.AllowedIdentities]; found {
		allowed, err := splitList(value)
		if err != nil {
			p.invalid(keys.AllowedIdentities, err)
			allowed = []string{} // which allows nothing
		}
		for i, glob := range allowed {
			// An account's client ID is given in lower case.
			if guid.MatchString(glob) {
				allowed[i] = strings.ToLower(glob)
			}
		}
		policy.Allowed = allowed
	}
	return policy, p.errs
}

// Refused gives the first of the names that the policy leaves out, and whether
// there is one.
func (p *Policy) Refused(names []string) (string, bool) {
	if p.Allowed == nil {
		return "", false
	}
	for _, name := range names {
		if !p.allows(name) {
			return name, true
		}
	}
	return "", false
}

func (p *Policy) allows(name string) bool {
	for _, glob := range p.Allowed {
		if matches(glob, name) {
			return true
		}
	}
	return false
}

// matches holds name against a glob whose only special character is "*". An
// ARN and a resource name hold slashes, which path.Match would not let "*"
// stand for.
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
