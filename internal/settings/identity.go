// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// maxAnnotations limits the annotations of one mapping.
const maxAnnotations = 32

// The globs for names of namespaces and ServiceAccounts. The chart turns them into
// regular expressions, so they have no other special character.
var (
	namespaceGlob      = regexp.MustCompile(`^[a-z0-9*-]{1,63}$`)
	serviceAccountGlob = regexp.MustCompile(`^[a-z0-9.*-]{1,253}$`)
)

// identities checks the form of the mappings. The meaning of their annotations
// is known only with the flags.
func (p *parser) identities(path *field.Path) {
	p.limit(len(p.Identities), maxIdentities, path)
	for i, identity := range p.Identities[:min(len(p.Identities), maxIdentities)] {
		path := path.Index(i)
		p.require(namespaceGlob.MatchString(identity.Namespace), path.Child("namespace"), identity.Namespace,
			`must be the name of a namespace, in which "*" stands for any characters`)
		p.require(serviceAccountGlob.MatchString(identity.ServiceAccount), path.Child("serviceAccount"), identity.ServiceAccount,
			`must be the name of a ServiceAccount, in which "*" stands for any characters`)
		if len(identity.Annotations) == 0 {
			p.errs = append(p.errs, field.Required(path.Child("annotations"), "must have at least one annotation, without the prefix"))
		}
		p.limit(len(identity.Annotations), maxAnnotations, path.Child("annotations"))
	}
}

// Mappings returns the mappings of the file. Mistakes have their lines. The settings
// include the file's providers.
func (f *File) Mappings(s *annotations.Settings) ([]*annotations.Mapping, error) {
	var mappings []*annotations.Mapping
	var errs field.ErrorList
	for i, identity := range f.Identities {
		path := field.NewPath(IdentitiesKey).Index(i).Child("annotations")
		full := map[string]string{}
		for key, value := range identity.Annotations {
			full[annotations.Prefix+key] = value
		}
		mapping, wrong := s.NewMapping(identity.Namespace, identity.ServiceAccount, full)
		for _, err := range wrong {
			errs = append(errs, &field.Error{Type: err.Type, Field: path.String(), BadValue: err.BadValue, Detail: strings.TrimPrefix(err.Field, "metadata.annotations") + " " + err.Detail})
		}
		mappings = append(mappings, mapping)
	}
	if len(errs) > 0 {
		return nil, f.WithLines(errs)
	}
	return mappings, nil
}
