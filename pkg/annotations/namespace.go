// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// MaxNamespaceBytes limits the annotations of a namespace, keys and values together.
// Longer ones are invalid and not kept.
const MaxNamespaceBytes = 16 << 10

// Policy restricts the identities that ServiceAccounts of a namespace may ask for. The zero
// value allows everything.
type Policy struct {
	// Allowed are globs: "*" stands for any number of characters, including none.
	// Nil allows everything.
	Allowed []string
	// FromDefault is true if Allowed is the cluster's default, because the namespace has no
	// annotation.
	FromDefault bool
}

// AllowNothing is the value of a policy that allows no identity.
const AllowNothing = "-"

// ParseNamespace parses the annotations of the namespace with this name.
func (s *Settings) ParseNamespace(name string, annotations map[string]string) (Policy, field.ErrorList) {
	p := parser{Settings: s, annotations: annotations}
	known := []string{AllowedIdentities}
	p.denyUnknown(unknown(annotations, known), known, "is not an annotation of a Namespace")
	value, found := annotations[AllowedIdentities]
	if !found {
		return s.policy(name), p.errs
	}
	allowed, err := parseAllowedIdentities(value)
	if err != nil {
		p.invalid(AllowedIdentities, err)
	}
	return Policy{Allowed: allowed}, p.errs
}

// policy returns the default policy of a namespace.
func (s *Settings) policy(namespace string) Policy {
	if s.AllowedIdentities == nil {
		return Policy{}
	}
	allowed := make([]string, len(s.AllowedIdentities))
	for i, glob := range s.AllowedIdentities {
		allowed[i] = strings.ReplaceAll(glob, NamespaceVariable, namespace)
	}
	return Policy{Allowed: allowed, FromDefault: true}
}

// parseAllowedIdentities reads the globs of a policy. If the list is malformed, it
// returns an error, and a policy that allows nothing.
func parseAllowedIdentities(value string) ([]string, error) {
	if value == AllowNothing {
		return []string{}, nil
	}
	allowed, err := splitList(value)
	if err != nil {
		return []string{}, err
	}
	for i, glob := range allowed {
		if guidGlob.MatchString(glob) { // principals have GUIDs in lower case
			allowed[i] = strings.ToLower(glob)
		}
	}
	return allowed, nil
}

// guidGlob matches a GUID, or the start of one with "*" in it.
var guidGlob = regexp.MustCompile(texts.GUIDGlobPattern)

// ParseDefaultAllowedIdentities parses Settings.AllowedIdentities, in which globs may contain
// NamespaceVariable. A misspelled variable is an error, because its glob would never match.
func ParseDefaultAllowedIdentities(value string) ([]string, error) {
	if strings.ContainsAny(strings.ReplaceAll(value, NamespaceVariable, ""), "{}") {
		return []string{}, errors.New("must have no braces except in " + NamespaceVariable)
	}
	return parseAllowedIdentities(value)
}

// Denied returns the first principal that the policy does not allow, and reports whether
// there is one.
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
