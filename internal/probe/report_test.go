// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/version"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func denial(message string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(message))
}

func TestDryRuns(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	injected := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"lanyard.dev/injected": "aws"}},
		"spec":     map[string]any{"volumes": []any{map[string]any{"name": "bound-sa-token"}}},
	}}
	for name, test := range map[string]struct {
		answer Answer
		want   []string // the part, the status and the start of each finding
	}{
		"an injected pod": {
			Answer{Pod: injected},
			[]string{"probe: ok: the API server can call the webhook", "dry run: ok: pods of ServiceAccount n/a get credentials: aws, from volume bound-sa-token"},
		},
		"a pod that was not injected": {
			Answer{Pod: &unstructured.Unstructured{}},
			[]string{"probe: ok: ", "dry run: failed: pods of ServiceAccount n/a get no credentials: the pod has no annotation lanyard.dev/injected"},
		},
		"a pod that Lanyard denied": {
			Answer{Err: errors.New(`admission webhook "probe.lanyard.dev" denied the request: lanyard: invalid_annotation: x`)},
			[]string{"probe: ok: ", "dry run: failed: pods of ServiceAccount n/a get no credentials: admission webhook"},
		},
		"a pod that the guard denied": {
			Answer{Err: denial("pods \"x\" is forbidden: ValidatingAdmissionPolicy 'lanyard-guard-pods' with binding 'lanyard-guard-pods' denied request: lanyard: ServiceAccount n/a needs credentials")},
			[]string{"probe: ok: ", "dry run: failed: pods of ServiceAccount n/a get no credentials: pods is forbidden: "},
		},
		"a pod that another webhook denied": {
			Answer{Err: apierrors.NewBadRequest(`admission webhook "other" denied the request: no`)},
			[]string{"probe: skipped: the dry run of a pod was denied, but not by Lanyard: admission webhook", "dry run: skipped: pods of ServiceAccount n/a were not tested"},
		},
		"a pod that was denied by something else": {
			Answer{Err: denial("exceeded quota")},
			[]string{"probe: skipped: the dry run of a pod was denied, but not by Lanyard: pods is forbidden: exceeded quota", "dry run: skipped: "},
		},
		"a user who may not create pods": {
			Answer{Err: denial(`User "a" cannot create resource "pods" in API group "" in the namespace "n"`)},
			[]string{"probe: skipped: could not determine whether the API server can call the webhook: you may not create pods in the namespace n", "dry run: skipped: "},
		},
		"a ServiceAccount that does not exist": {
			Answer{Err: denial(`error looking up service account n/a: serviceaccount "a" not found`)},
			[]string{"probe: skipped: ", "dry run: failed: ServiceAccount n/a does not exist"},
		},
		"an API server that is not there": {
			Answer{Err: errors.New("dial tcp: connection refused")},
			[]string{"probe: skipped: the API server did not respond to the dry run of a pod: dial tcp", "dry run: skipped: "},
		},
		"a webhook that cannot be called": {
			Answer{Err: errors.New(`failed calling webhook "probe.lanyard.dev": no endpoints`)},
			[]string{"probe: failed: the API server cannot call the webhook: failed calling", "dry run: skipped: pods of ServiceAccount n/a were not tested: the API server cannot call"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called, tried := DryRun(s, "n/a", test.answer)
			got := []string{"probe: " + string(called.Status) + ": " + called.Text, "dry run: " + string(tried.Status) + ": " + tried.Text}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("got %q, want %q", got[i], test.want[i])
				}
			}
		})
	}
}

// The fix must not be "Correct the cause in the error."
func TestAFailedCallHasItsCause(t *testing.T) {
	t.Parallel()
	got := Probe(errors.New(`failed calling webhook "probe.lanyard.dev": failed to call webhook: Post "https://x.y.svc:443/mutate-v1-pod?timeout=5s": context deadline exceeded`))
	if !strings.Contains(got.Fix, "NetworkPolicy") || !strings.Contains(got.Fix, "port 9443") || got.Link != version.Page("docs/install/platforms.md#ports") {
		t.Errorf("got %+v, want the cause, the next step and its page", got)
	}
}
