// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Readers of the message look for one key, not for all of them.
func TestTheMessageAboutAMistypedKeyNamesTheNearestKeyFirst(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	parse := map[string]func(map[string]string) field.ErrorList{
		"ServiceAccount": func(values map[string]string) field.ErrorList {
			_, errs := s.ParseServiceAccount("team", "app", values)
			return errs
		},
		"Pod": func(values map[string]string) field.ErrorList {
			_, errs := s.ParsePod(values, "")
			return errs
		},
		"Namespace": func(values map[string]string) field.ErrorList {
			_, errs := s.ParseNamespace("team", values)
			return errs
		},
	}
	for name, test := range map[string]struct{ object, mistyped, nearest string }{
		"a key of a ServiceAccount":            {"ServiceAccount", "aws-roel-arn", "aws-role-arn"},
		"a key without its cloud":              {"ServiceAccount", "workload-identity-provider", "gcp-workload-identity-provider"},
		"a key of a profile":                   {"ServiceAccount", "aws-rolearn.audit", "aws-role-arn"},
		"a key with capitals":                  {"ServiceAccount", "azure-clientID", "azure-client-id"},
		"a key of a Pod":                       {"Pod", "skip-container", "skip-containers"},
		"another key of a Pod":                 {"Pod", "injcet", "inject"},
		"a key of a Namespace":                 {"Namespace", "allowed-identity", "allowed-identities"},
		"a key like no other":                  {"ServiceAccount", "zzz", ""},
		"a key of a ServiceAccount on a Pod":   {"Pod", "azure-tenant-id", ""},
		"a key of a ServiceAccount, far away":  {"Namespace", "aws-region", ""},
		"a key of a Pod on the ServiceAccount": {"ServiceAccount", "inject", ""},
	} {
		errs := parse[test.object](map[string]string{annotations.Prefix + test.mistyped: "1"})
		if len(errs) == 0 {
			t.Errorf("%s: got no error", name)
			continue
		}
		got, list, found := strings.Cut(errs[0].Detail, "; known keys are ")
		_, nearest, _ := strings.Cut(got, "; the nearest key is ")
		want := ""
		if test.nearest != "" {
			want = annotations.Prefix + test.nearest
		}
		if nearest != want || !found || !strings.HasPrefix(list, annotations.Prefix) {
			t.Errorf("%s: got %q, want the nearest key %q, and then the list", name, errs[0].Detail, want)
		}
	}
}
