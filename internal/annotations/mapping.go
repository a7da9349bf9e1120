// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
)

// Mapping gives annotations to the ServiceAccounts that match. Make it with
// NewMapping.
type Mapping struct {
	namespace, serviceAccount string // globs
	annotations               map[string]string
	providers                 []*provider.Definition // that the annotations ask for
}

// NewMapping returns a mapping for the ServiceAccounts whose names match the globs,
// in which "*" stands for any characters. The annotations have full keys. They must
// make a valid ServiceAccount that asks for an identity.
func NewMapping(keys *Keys, namespace, serviceAccount string, annotations map[string]string, defaults *Defaults) (*Mapping, field.ErrorList) {
	identity, errs := ParseServiceAccount(keys, annotations, defaults.For("namespace", "serviceaccount"))
	if len(errs) == 0 && identity == nil {
		errs = field.ErrorList{field.Required(annotationsPath, "must ask for an identity")}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	m := Mapping{namespace: namespace, serviceAccount: serviceAccount, annotations: annotations}
	for i := range identity.Providers {
		m.providers = append(m.providers, identity.Providers[i].Definition)
	}
	return &m, nil
}

// Map returns the annotations that the mappings add to a ServiceAccount, nil for
// none. A mapping is left out if the ServiceAccount has an annotation of one of
// its providers, whether by hand or by an earlier mapping.
func (k *Keys) Map(mappings []*Mapping, namespace, name string, annotations map[string]string) map[string]string {
	var added map[string]string
	for _, m := range mappings {
		if !matches(m.namespace, namespace) || !matches(m.serviceAccount, name) || k.has(m, annotations) || k.has(m, added) {
			continue
		}
		if added == nil {
			added = map[string]string{}
		}
		maps.Copy(added, m.annotations)
	}
	return added
}

// has reports whether the annotations have something of the mapping's providers, or a
// key of the mapping. A key that is of every provider must not be on one side, with an
// identity on the other: the mapping must not change an identity of the ServiceAccount,
// nor the other way around.
func (k *Keys) has(m *Mapping, annotations map[string]string) bool {
	tokens, _ := splitList(annotations[k.Tokens])
	for key := range annotations {
		ofProvider := func(d *provider.Definition) bool { return !d.Plain() && strings.HasPrefix(key, k.Prefix+d.Key("")) }
		if _, mapped := m.annotations[key]; mapped || key == k.Audience || slices.ContainsFunc(m.providers, ofProvider) {
			return true
		}
	}
	if slices.ContainsFunc(m.providers, func(d *provider.Definition) bool { return slices.Contains(tokens, d.Name) }) {
		return true
	}
	ofAll := m.annotations[k.Audience] != "" || m.annotations[k.TokenExpirationSeconds] != ""
	return ofAll && k.AskForIdentity(annotations)
}
