// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// Without the expression for a function, pods would silently differ from those of the
// webhook.
func TestEachFunctionOfAProviderHasAnExpression(t *testing.T) {
	t.Parallel()
	for _, p := range provider.Builtin() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			got := policies.FunctionsOf(p)
			var expand []string
			for i := range p.Parameters {
				if p.Parameters[i].Expand != nil {
					expand = append(expand, p.Parameters[i].Name)
				}
			}
			slices.Sort(expand)
			if diff := cmp.Diff(expand, slices.Sorted(maps.Keys(got.Expand))); diff != "" {
				t.Errorf("parameters with Expand (-provider +expressions):\n%s", diff)
			}
			values := annotations.Values{}
			if p.Derive != nil {
				p.Derive(values)
			}
			var derived []string
			for i := range got.Derived {
				derived = append(derived, got.Derived[i].Name)
			}
			slices.Sort(derived)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(values)), derived); diff != "" {
				t.Errorf("values of Derive (-provider +expressions):\n%s", diff)
			}
			hasFile := p.CredentialFile != nil && p.CredentialFile.Content(values, nil) != ""
			if hasFile != (got.File != "") {
				t.Errorf("got a credential file without profiles %t, and an expression %t", hasFile, got.File != "")
			}
		})
	}
}
