// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// alone returns the injection of a token without an identity. A container sets the identity
// with the variable ROLE.
func alone() *provider.Injection {
	i := injection()
	i.Providers[0].Variables, i.Providers[0].Needs = i.Providers[0].Variables[1:], "ROLE"
	return i
}

func TestATokenAloneGivesVariablesOnlyToContainersWithAnIdentity(t *testing.T) {
	t.Parallel()
	all := []string{"FILE", "REGION", "DEFAULT_REGION"}
	for name, test := range map[string]struct {
		env   string
		want  []string
		finds []string
	}{
		"it sets nothing":        {``, nil, []string{`environment_incomplete: container "main": it does not set ROLE itself, so it gets the aws token in its volume, but none of the variables: SDKs would fail`}},
		"it sets something else": {set("OTHER", "x"), nil, []string{`environment_incomplete: container "main"`}},
		"it sets a role":         {set("ROLE", "mine"), all, nil},
		"it takes a role from a Secret": {
			`{"name":"ROLE","valueFrom":{"secretKeyRef":{"name":"a","key":"b"}}}`, all, nil,
		},
		"its role is empty":              {set("ROLE", ""), nil, []string{`environment_incomplete: container "main"`}},
		"the last of its roles is empty": {set("ROLE", "mine") + "," + set("ROLE", ""), nil, []string{`environment_incomplete: container "main"`}},
		"it sets a region only":          {set("REGION", "x"), nil, []string{`environment_incomplete: container "main"`}},
		"it has a token of its own":      {set("FILE", "/own"), nil, []string{`environment_taken: container "main"`}},
		"it has a role and a region":     {set("ROLE", "mine") + "," + set("REGION", "x"), []string{"FILE"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := `{"spec":{"containers":[{"name":"main","env":[` + test.env + `]}]}}`
			patched, result := createTwice(t, pod, alone())
			before, after := decode(t, pod).Spec.Containers[0], decode(t, patched).Spec.Containers[0]
			var got []string
			for _, v := range after.Env[len(before.Env):] {
				got = append(got, v.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
			if result.Reason != reason.Injected || len(after.VolumeMounts) != 1 {
				t.Errorf("got %s and mounts %v, want %s and one mount", result.Reason, after.VolumeMounts, reason.Injected)
			}
			checkFindings(t, test.finds, result.Findings)
		})
	}
}

// The variables of other providers do not depend on the variable ROLE.
func TestATokenAloneLeavesOtherProvidersAsTheyAre(t *testing.T) {
	t.Parallel()
	i := alone()
	i.Providers = append(i.Providers, provider.Provider{Name: "vault", Token: provider.Token{Audience: "vault", Path: "vault/token"}})
	i.Providers[1].Variables = injection().Providers[0].Variables[:1]
	i.Providers[1].Variables[0].Name = "VAULT_ROLE"
	patched, _ := createTwice(t, `{"spec":{"containers":[{"name":"main"}]}}`, i)
	want := []variableSpec{{Name: "VAULT_ROLE", Value: "r"}}
	if diff := cmp.Diff(want, decode(t, patched).Spec.Containers[0].Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
}
