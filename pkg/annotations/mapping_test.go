// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func newMapping(t *testing.T, namespace, name string, short ...string) *annotations.Mapping {
	t.Helper()
	given := map[string]string{}
	for i := 0; i < len(short); i += 2 {
		given["lanyard.dev/"+short[i]] = short[i+1]
	}
	m, errs := clusterSettings(t).NewMapping(namespace, name, given)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return m
}

// The name of one provider may begin with that of another.
func TestAnAnnotationBelongsToOneProvider(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(append(slices.Clone(newSettings(t).Providers), &annotations.Provider{
		Name: "aws-minio", MaxAudienceBytes: 1, Parameters: []annotations.Parameter{{Name: "role", Identity: true, MaxBytes: 9}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	s.Mappings = []*annotations.Mapping{newMapping(t, "*", "*", "aws-role-arn", roleARN)}
	want := prefixed(map[string]string{"aws-role-arn": roleARN})
	if diff := cmp.Diff(want, s.Map("team", "app", prefixed(map[string]string{"aws-minio-role": "x"}))); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
}

func TestMap(t *testing.T) {
	t.Parallel()
	aws := newMapping(t, "team-*", "loki", "aws-role-arn", roleARN, "aws-region", "eu-central-1")
	other := newMapping(t, "*", "lo*", "aws-role-arn", "arn:aws:iam::111122223333:role/other")
	azure := newMapping(t, "*", "*", "azure-client-id", clientID)
	plain := newMapping(t, "*", "*", "audience", "vault")
	short := newMapping(t, "*", "*", "aws-role-arn", roleARN, "token-expiration-seconds", "600")
	tokens := newMapping(t, "*", "*", "tokens", "aws")
	awsKeys := map[string]string{"aws-role-arn": roleARN, "aws-region": "eu-central-1"}
	both := map[string]string{"aws-role-arn": roleARN, "aws-region": "eu-central-1", "azure-client-id": clientID}
	for sentence, tt := range map[string]struct {
		mappings        []*annotations.Mapping
		namespace, name string
		has, want       map[string]string // without the prefix
	}{
		"a ServiceAccount that matches":                       {[]*annotations.Mapping{aws}, "team-a", "loki", nil, awsKeys},
		"a ServiceAccount in another namespace":               {[]*annotations.Mapping{aws}, "teams", "loki", nil, nil},
		"a ServiceAccount with another name":                  {[]*annotations.Mapping{aws}, "team-a", "loki2", nil, nil},
		"annotations of another provider":                     {[]*annotations.Mapping{aws}, "team-a", "loki", map[string]string{"azure-client-id": clientID}, awsKeys},
		"annotations of the same provider":                    {[]*annotations.Mapping{aws}, "team-a", "loki", map[string]string{"aws-role-arn": roleARN}, nil},
		"one annotation of the same provider, of another key": {[]*annotations.Mapping{other}, "team-a", "loki", map[string]string{"aws-region": "eu-central-1"}, nil},
		"a malformed annotation of the same provider":         {[]*annotations.Mapping{other}, "team-a", "loki", map[string]string{"aws-x": ""}, nil},
		"the token of the same provider":                      {[]*annotations.Mapping{aws}, "team-a", "loki", map[string]string{"tokens": "azure, aws"}, nil},
		"the token of another provider":                       {[]*annotations.Mapping{aws}, "team-a", "loki", map[string]string{"tokens": "azure"}, awsKeys},
		"tokens, which only one annotation can name":          {[]*annotations.Mapping{tokens}, "team-a", "loki", map[string]string{"tokens": "azure"}, nil},
		"a lifetime that the ServiceAccount has already":      {[]*annotations.Mapping{short}, "team-a", "loki", map[string]string{"token-expiration-seconds": "900"}, nil},
		"an audience, which would be of every provider":       {[]*annotations.Mapping{aws}, "team-a", "loki", map[string]string{"audience": "vault"}, nil},
		"the first of two mappings for a provider":            {[]*annotations.Mapping{aws, other}, "team-a", "loki", nil, awsKeys},
		"mappings for two providers":                          {[]*annotations.Mapping{aws, azure, other}, "team-a", "loki", nil, both},
		"a plain token after a provider":                      {[]*annotations.Mapping{aws, plain}, "team-a", "loki", nil, awsKeys},
		"a lifetime, which would be of every provider":        {[]*annotations.Mapping{short}, "team-a", "loki", map[string]string{"azure-client-id": clientID}, nil},
		"a lifetime of nothing else":                          {[]*annotations.Mapping{short}, "team-a", "loki", nil, map[string]string{"aws-role-arn": roleARN, "token-expiration-seconds": "600"}},
		"a provider after a plain token":                      {[]*annotations.Mapping{plain, aws}, "team-a", "loki", nil, map[string]string{"audience": "vault"}},
		"others' annotations":                                 {[]*annotations.Mapping{plain}, "team-a", "loki", map[string]string{"inject": "true"}, map[string]string{"audience": "vault"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := newSettings(t)
			s.Mappings = tt.mappings
			has := prefixed(tt.has)
			before := maps.Clone(has)
			got := s.Map(tt.namespace, tt.name, has)
			want := prefixed(tt.want)
			if tt.want == nil {
				want = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, has); diff != "" {
				t.Errorf("the ServiceAccount's annotations changed (-before +after):\n%s", diff)
			}
			// The added annotations stay, and a second call adds none.
			maps.Copy(has, got)
			if again := s.Map(tt.namespace, tt.name, has); len(again) > 0 {
				t.Errorf("a second pass added %v", again)
			}
		})
	}
}

func TestAMappingAsksForAValidIdentity(t *testing.T) {
	t.Parallel()
	for sentence, given := range map[string]map[string]string{
		"nothing":                     {},
		"a malformed role":            {"aws-role-arn": "x"},
		"an unknown key":              {"aws-rol": "x"},
		"a region alone":              {"aws-region": "eu-central-1"},
		"another prefix in the key":   {"x/aws-role-arn": roleARN},
		"verify without an image":     {"aws-role-arn": roleARN, "verify": "wait"},
		"a lifetime that is too long": {"aws-role-arn": roleARN, "token-expiration-seconds": "1000000"},
	} {
		if m, errs := clusterSettings(t).NewMapping("*", "*", prefixed(given)); len(errs) == 0 {
			t.Errorf("%s: got %+v and no error", sentence, m)
		}
	}
}
