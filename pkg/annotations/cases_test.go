// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/cases"
)

// expanded returns the values with the prefix in their keys, and with {300*a} replaced
// by 300 times "a".
func expanded(prefix string, values map[string]string) map[string]string {
	result := map[string]string{}
	for key, value := range values {
		result[prefix+key] = cases.Expand(value)
	}
	return result
}

// podCase is a pod's annotations and label, and the result of reading them.
type podCase struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Label       string            `json:"label,omitempty"`
	Errors      []string          `json:"errors,omitempty"`
	Result      struct {
		OptOut                 bool     `json:"optOut,omitempty"`
		Insists                bool     `json:"insists,omitempty"`
		Containers             []string `json:"containers,omitempty"`
		SkipContainers         []string `json:"skipContainers,omitempty"`
		TokenExpirationSeconds int64    `json:"tokenExpirationSeconds,omitempty"`
	} `json:"result"`
}

// serviceAccountCase is a ServiceAccount's annotations without the prefix and the
// cluster's defaults, and the result of reading them.
type serviceAccountCase struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	// FullCluster is true for a cluster with every default: clusterSettings.
	FullCluster bool `json:"fullCluster,omitempty"`
	// Defaults contains the only settings of any other cluster.
	Defaults   map[string]string `json:"defaults,omitempty"`
	Errors     []string          `json:"errors,omitempty"`
	Identities []identityCase    `json:"identities,omitempty"`
	Lifetime   int64             `json:"tokenExpirationSeconds,omitempty"`
	Verify     string            `json:"verify,omitempty"`
}

type identityCase struct {
	Provider   string            `json:"provider"`
	Audience   string            `json:"audience"`
	Values     map[string]string `json:"values,omitempty"`
	TokenAlone bool              `json:"tokenAlone,omitempty"`
}

// result sets the result of a case.
func (c *serviceAccountCase) result(account *annotations.ServiceAccount, errs []string) {
	c.Errors, c.Identities, c.Lifetime, c.Verify = errs, nil, 0, ""
	if account == nil {
		return
	}
	c.Lifetime, c.Verify = account.TokenExpirationSeconds, account.Verify
	for _, i := range account.Identities {
		c.Identities = append(c.Identities, identityCase{i.Provider.Name, i.Audience, i.Values, i.TokenAlone})
	}
}

var update = flag.Bool("update", false, "write the results into the files in testdata")

// check calls decide for each case of a file in testdata. decide replaces the result in
// the case, and the case must stay the same. With the flag -update, the file gets the new
// results.
func check[C any](t *testing.T, file string, decide func(t *testing.T, c *C)) {
	t.Helper()
	all := cases.Read[C](t, file)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			want := *c
			decide(t, c)
			if diff := cmp.Diff(want, *c, cmpopts.EquateEmpty()); diff != "" && !*update {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if !*update {
		return
	}
	text, err := yaml.Marshal(all)
	if err == nil {
		err = os.WriteFile(filepath.Join("testdata", file), append([]byte("# Copyright The Lanyard Authors.\n# SPDX-License-Identifier: Apache-2.0\n\n"), text...), 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}
