// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		want   []string // the section, the status and the start of each line
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
			var got []string
			for _, section := range DryRun(s, "n/a", test.answer) {
				for _, line := range section.Lines {
					got = append(got, section.Name+": "+string(line.Status)+": "+line.Text)
				}
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
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

func TestLinesHaveANextStep(t *testing.T) {
	t.Parallel()
	line := Fail("Do it.", "install/README.md", "it is wrong: %s", "x")
	if want := "it is wrong: x\n  Do it.\n  " + version.Page("docs/install/README.md"); line.String() != want {
		t.Errorf("got %q, want %q", line.String(), want)
	}
	if line := Passed("right"); line.String() != "right" {
		t.Errorf("got %q", line.String())
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]Line{
		`User "a" cannot list resource "mutatingwebhookconfigurations" in API group "admissionregistration.k8s.io" at the cluster scope`: {
			Text: "it cannot be read: you may not list mutatingwebhookconfigurations.admissionregistration.k8s.io",
			Fix:  "Ask an administrator for the ClusterRole lanyard-view.", Missing: "list mutatingwebhookconfigurations.admissionregistration.k8s.io",
		},
		`User "a" cannot get path "/openid/v1/jwks"`: {
			Text: "it cannot be read: you may not get /openid/v1/jwks", Fix: "Ask an administrator for the ClusterRole lanyard-view.", Missing: "get /openid/v1/jwks",
		},
		`User "a" cannot list resource "pods" in API group "" in the namespace "n"`: {
			Text: "it cannot be read: you may not list pods in the namespace n",
			Fix:  "Ask an administrator for the ClusterRole view in the namespace n.", Missing: "list pods in the namespace n",
		},
		`User "a" cannot list resource "namespaces" in API group "" at the cluster scope`: {
			Text: "it cannot be read: you may not list namespaces", Fix: "Ask an administrator for the ClusterRole view.", Missing: "list namespaces",
		},
		`exceeded quota`: {Text: "it cannot be read: pods is forbidden: exceeded quota", Fix: "Check the connection to the API server."},
	} {
		want.Status = Skipped
		if want.Missing != "" {
			want.Link = version.Page("docs/operations/README.md#rights-of-readers")
		}
		if diff := cmp.Diff(want, Unreadable("it", fmt.Errorf("wrapped: %w", denial(message))), cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Text" },
			cmp.Comparer(func(a, b string) bool {
				return strings.ReplaceAll(a, "wrapped: ", "") == strings.ReplaceAll(b, "wrapped: ", "")
			}))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if right := MissingRight(errors.New(`User "a" cannot get path "/"`)); right != "" {
		t.Errorf("got %s for an error that is not about rights", right)
	}
}

func TestReportsCountTheirLines(t *testing.T) {
	t.Parallel()
	report := Report{Sections: []Section{{"a", []Line{Passed("x"), Skip("", "y")}}, {"b", []Line{Passed("z"), DoesNotApply("n")}}}}
	report.Summarize()
	if diff := cmp.Diff(map[Status]int{OK: 2, Skipped: 1, Failed: 0, Warning: 0, NotApplicable: 1}, report.Summary); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
