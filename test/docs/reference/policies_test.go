// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// unavailable returns the features that policies do not support: parameters and values of the
// built-in providers without an expression, and settings that package policies denies.
func unavailable() (string, error) {
	t := newTable("What", "Result")
	denied := "denied"
	for _, d := range provider.Builtin() {
		for i := range d.Parameters {
			if p := &d.Parameters[i]; p.Parse != nil && !p.ClusterOnly {
				t.row("annotation "+code(annotations.Prefix+d.Key(p.Name)), denied)
			}
		}
		if d.Profiles != nil {
			for _, name := range []string{d.Profiles.Parameter, d.Profiles.Source} {
				t.row("annotation "+code(annotations.Prefix+d.Key(name)+".PROFILE"), denied)
			}
		}
		for _, derived := range policies.FunctionsOf(d).Derived {
			if derived.Valid != "" {
				t.row("with "+d.Name+", a ServiceAccount that "+derived.Want, denied)
			}
		}
	}
	t.row("annotation "+code(annotations.Verify), denied)
	const printed = "`lanyard policies` exits with code 1"
	t.row("setting "+code("adopt"), printed)
	t.row("setting "+code("identities"), printed)
	t.row("setting "+code("token-mount-path")+" with more than letters, digits, `/`, `.`, `_` and `-`", printed)
	return t.String(), nil
}
