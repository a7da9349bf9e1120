// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// maxAnnotations limits the annotations of one mapping.
const maxAnnotations = 32

// Globs for names of namespaces and ServiceAccounts. The chart turns them into regular
// expressions, so "*" is the only special character.
var (
	namespaceGlob      = regexp.MustCompile(`^[a-z0-9*-]{1,63}$`)
	serviceAccountGlob = regexp.MustCompile(`^[a-z0-9.*-]{1,253}$`)
)

// identities checks the form of the mappings. Their annotations can be checked only with the
// flags.
func (p *parser) identities(at place) {
	p.limit(len(p.Identities), maxIdentities, at)
	for i := range p.Identities[:min(len(p.Identities), maxIdentities)] {
		identity, at := &p.Identities[i], at.index(i)
		identity.place = at.child("annotations")
		p.require(namespaceGlob.MatchString(identity.Namespace), at.child("namespace"), identity.Namespace,
			`must be the name of a namespace, in which "*" stands for any characters`)
		p.require(serviceAccountGlob.MatchString(identity.ServiceAccount), at.child("serviceAccount"), identity.ServiceAccount,
			`must be the name of a ServiceAccount, in which "*" stands for any characters`)
		if len(identity.Annotations) == 0 {
			p.missing(identity.place, "must have at least one annotation; write its key without the prefix")
		}
		p.limit(len(identity.Annotations), maxAnnotations, identity.place)
	}
}

// mappings returns the mappings of the file. Errors contain line numbers. s includes the
// file's providers.
func (f *File) mappings(s *annotations.Settings) ([]*annotations.Mapping, error) {
	var mappings []*annotations.Mapping
	var errs []error
	for i := range f.Identities {
		identity := &f.Identities[i]
		full := map[string]string{}
		for key, value := range identity.Annotations {
			full[annotations.Prefix+key] = value
		}
		mapping, wrong := s.NewMapping(identity.Namespace, identity.ServiceAccount, full)
		for _, err := range wrong {
			detail := err.Detail
			if key := annotations.KeyOf(err); key != "" {
				detail = fmt.Sprintf("[%s] %s", key, detail)
			}
			errs = append(errs, identity.place.error(&field.Error{Type: err.Type, Field: identity.place.path.String(), BadValue: err.BadValue, Detail: detail}))
		}
		mappings = append(mappings, mapping)
	}
	return mappings, errors.Join(errs...)
}
