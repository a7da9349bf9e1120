// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Mapping gives annotations to the ServiceAccounts that match. Make it with
// NewMapping.
type Mapping struct {
	namespace, serviceAccount string // globs
	annotations               map[string]string
	providers                 []*Provider // that the annotations ask for
}

// NewMapping returns a mapping for the ServiceAccounts whose names match the globs,
// in which "*" stands for any characters. The annotations have full keys. They must
// make a valid ServiceAccount that asks for an identity.
func (s *Settings) NewMapping(namespace, serviceAccount string, annotations map[string]string) (*Mapping, field.ErrorList) {
	parsed, errs := s.ParseServiceAccount("namespace", "serviceaccount", annotations)
	if len(errs) == 0 && parsed == nil {
		errs = field.ErrorList{field.Required(annotationsPath, "must ask for an identity")}
	}
	if parsed != nil {
		if err := s.CheckVerify(parsed); err != nil {
			errs = field.ErrorList{err}
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	m := Mapping{namespace: namespace, serviceAccount: serviceAccount, annotations: annotations}
	for i := range parsed.Identities {
		m.providers = append(m.providers, parsed.Identities[i].Provider)
	}
	return &m, nil
}

// Map returns the annotations that the mappings add to a ServiceAccount, or nil if there are
// none. A mapping is left out if the ServiceAccount has an annotation of one of
// its providers, whether by hand or by an earlier mapping.
func (s *Settings) Map(namespace, name string, annotations map[string]string) map[string]string {
	var added map[string]string
	for _, m := range s.Mappings {
		if !matches(m.namespace, namespace) || !matches(m.serviceAccount, name) || s.has(m, annotations) || s.has(m, added) {
			continue
		}
		if added == nil {
			added = map[string]string{}
		}
		maps.Copy(added, m.annotations)
	}
	return added
}

// has reports whether the annotations contain a key of the mapping or of its providers, known or
// not. It also compares keys that apply to all providers, such as audience: if one side sets such a
// key and the other has an identity, the key would change that identity.
func (s *Settings) has(m *Mapping, annotations map[string]string) bool {
	tokens, _ := splitList(annotations[Tokens])
	for key := range annotations {
		owner := s.Owner(key)
		ofProvider := func(d *Provider) bool {
			switch {
			case d.Plain():
				return false
			case owner != nil: // whose name may begin with the other's
				return owner.Name == d.Name
			}
			return strings.HasPrefix(key, Prefix+d.Key(""))
		}
		if _, mapped := m.annotations[key]; mapped || key == Audience || slices.ContainsFunc(m.providers, ofProvider) {
			return true
		}
	}
	if slices.ContainsFunc(m.providers, func(d *Provider) bool { return slices.Contains(tokens, d.Name) }) {
		return true
	}
	ofAll := m.annotations[Audience] != "" || m.annotations[TokenExpirationSeconds] != "" || m.annotations[Verify] != ""
	return ofAll && s.AskForIdentity(annotations)
}
