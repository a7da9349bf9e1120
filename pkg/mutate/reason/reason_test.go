// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reason_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// declared reads the constants of the type Reason from the package's source.
func declared(t *testing.T) []reason.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []reason.Reason
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		reasons = append(reasons, reason.Reason(text))
		return true
	})
	return reasons
}

func TestAllListsEveryReason(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(declared(t), reason.All()); diff != "" {
		t.Errorf("reasons (-declared +listed):\n%s", diff)
	}
}

// The words are public, because dashboards and alerts use them.
func TestReasonsKeepTheirWords(t *testing.T) {
	t.Parallel()
	want := []reason.Reason{
		"adopted", "already_injected", "container_not_found", "container_not_selected", "environment_incomplete", "environment_shadowed", "environment_taken",
		"foreign_injection", "identity_not_allowed", "identity_required", "injected", "internal_error", "invalid_annotation", "invalid_mount_path",
		"invalid_review", "labeled", "lookup_failed", "mapped", "mirror_pod", "mount_path_taken", "no_container", "no_identity", "not_verified", "opted_out",
		"overloaded", "pod_name_unusable", "serviceaccount_not_found", "too_large", "valid", "volume_missing", "volume_name_taken",
	}
	got := reason.All()
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestReasonsAreLabelValues(t *testing.T) {
	t.Parallel()
	grammar := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[reason.Reason]bool{}
	for _, r := range reason.All() {
		if !grammar.MatchString(string(r)) {
			t.Errorf("%q: want words of lower-case letters joined by underscores", r)
		}
		if seen[r] {
			t.Errorf("%q is listed twice", r)
		}
		seen[r] = true
	}
}

func TestAllReturnsACopy(t *testing.T) {
	t.Parallel()
	reason.All()[0] = "changed"
	if slices.Contains(reason.All(), "changed") {
		t.Error("a caller can change the vocabulary")
	}
}

// Users look up the reasons in warnings and alerts there.
func TestEveryReasonIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reason.All() {
		if rows := strings.Count(string(text), "\n| `"+string(r)+"` |"); rows != 1 {
			t.Errorf("docs/reference/reasons.md has %d rows for %s, want 1", rows, r)
		}
	}
}
