// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// testTypes checks the types of all expressions as kube-controller-manager does, which writes its
// warnings to the status of a policy. "lanyard check" treats a warning as a broken guard.
func (c *cluster) testTypes(t *testing.T) {
	checker := &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: c.client.Discovery()},
		RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery())),
	}
	checked := 0
	for _, name := range []string{"base/70-guard.yaml", "base/71-fences.yaml", "policies/policies.yaml"} {
		for _, policy := range validatingPolicies(t, "../../deploy/"+name) {
			checked++
			for _, warning := range checker.Check(policy) {
				t.Errorf("%s of %s: %s: %s", policy.Name, name, warning.FieldRef, warning.Warning)
			}
		}
	}
	if checked < 5 {
		t.Errorf("found %d policies, want at least 5", checked)
	}
}

func validatingPolicies(t *testing.T, name string) (policies []*admissionregistrationv1.ValidatingAdmissionPolicy) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), 4096)
	for {
		policy := new(admissionregistrationv1.ValidatingAdmissionPolicy)
		if err := decoder.Decode(policy); errors.Is(err, io.EOF) {
			return policies
		} else if err != nil {
			t.Fatal(err)
		}
		if policy.Kind == "ValidatingAdmissionPolicy" {
			policies = append(policies, policy)
		}
	}
}
