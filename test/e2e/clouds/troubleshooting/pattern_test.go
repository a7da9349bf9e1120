// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package troubleshooting

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// base is the directory of the manifests of deploy/.
const base = "../../../../deploy/base/"

// The pattern for Argo Workflows must match only transient errors: otherwise, a step with
// wrong annotations would never end.
func TestTransientErrorPattern(t *testing.T) {
	t.Parallel()
	setting := regexp.MustCompile(`TRANSIENT_ERROR_PATTERN='(.+)'`).FindStringSubmatch(readPage(t, "pods-denied.md"))
	if setting == nil {
		t.Fatal("got no TRANSIENT_ERROR_PATTERN in pods-denied.md")
	}
	pattern := regexp.MustCompile(setting[1])
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var webhooks admissionregistrationv1.MutatingWebhookConfiguration
	readFirst(t, base+"70-guard.yaml", &policy)
	readFirst(t, base+"50-mutatingwebhookconfiguration.yaml", &webhooks)
	pods := webhooks.Webhooks[0].Name
	tests := map[string]struct {
		message string
		want    bool
	}{
		"a denial by the guard":        {fmt.Sprintf(`pods "a" is forbidden: ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: lanyard: …`, policy.Name), true},
		"a failed call":                {fmt.Sprintf(`Internal error occurred: failed calling webhook %q: failed to call webhook: …`, pods), true},
		"a denial by the webhook":      {fmt.Sprintf(`admission webhook %q denied the request: lanyard: invalid_annotation: …`, pods), false},
		"a denial by another policy":   {`pods "a" is forbidden: ValidatingAdmissionPolicy 'no-latest' with binding 'no-latest' denied request: …`, false},
		"a failed call of another one": {`Internal error occurred: failed calling webhook "validate.example.com": failed to call webhook: …`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := pattern.MatchString(test.message); got != test.want {
				t.Errorf("%s matches %s: got %t, want %t", pattern, test.message, got, test.want)
			}
		})
	}
}

// readFirst decodes the first object of a manifest.
func readFirst(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile(`(?m)^---$`).Split(string(text), 2)[0]
	if err := yaml.Unmarshal([]byte(first), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
