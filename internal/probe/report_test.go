// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

func TestDryRuns(t *testing.T) {
	t.Parallel()
	keys, err := annotations.NewKeys(annotations.DefaultPrefix, provider.Builtin())
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
		"a pod that another webhook denied": {
			Answer{Err: apierrors.NewBadRequest(`admission webhook "other" denied the request: no`)},
			[]string{"probe: failed: the dry run of a pod was denied, but not by Lanyard: admission webhook"},
		},
		"a pod that was denied by something else": {
			Answer{Err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("exceeded quota"))},
			[]string{"probe: failed: the dry run of a pod was denied, but not by Lanyard: pods is forbidden: exceeded quota"},
		},
		"an API server that is not there": {
			Answer{Err: errors.New("dial tcp: connection refused")},
			[]string{"probe: failed: the API server did not respond to the dry run of a pod: dial tcp"},
		},
		"a webhook that cannot be called": {
			Answer{Err: errors.New(`failed calling webhook "probe.lanyard.dev": no endpoints`)},
			[]string{"probe: failed: the API server cannot call the webhook: failed calling"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, section := range DryRun(&keys, "n/a", test.answer) {
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

func TestLinesSayWhatToDo(t *testing.T) {
	t.Parallel()
	line := Fail("Do it.", "install.md", "it is wrong: %s", "x")
	if want := "it is wrong: x\n  Do it.\n  https://github.com/lanyard-dev/lanyard/blob/main/docs/install.md"; line.String() != want {
		t.Errorf("got %q, want %q", line.String(), want)
	}
	if line := Passed("right"); line.String() != "right" {
		t.Errorf("got %q", line.String())
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	for _, test := range []struct {
		err    error
		status Status
		text   string
	}{
		{forbidden, Skipped, "the pods cannot be read: pods is forbidden: no"},
		{errors.New("EOF"), Failed, "the pods cannot be read: EOF"},
	} {
		if got := Unreadable("the pods", test.err); got.Status != test.status || got.Text != test.text || got.Fix == "" {
			t.Errorf("got %+v, want %s: %s, and what to do", got, test.status, test.text)
		}
	}
}

func TestReportsCountTheirLines(t *testing.T) {
	t.Parallel()
	report := Report{[]Section{{"a", []Line{Passed("x"), Skip("y")}}, {"b", []Line{Passed("z")}}}}
	got := map[Status]int{OK: report.Count(OK), Skipped: report.Count(Skipped), Failed: report.Count(Failed)}
	if diff := cmp.Diff(map[Status]int{OK: 2, Skipped: 1, Failed: 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
