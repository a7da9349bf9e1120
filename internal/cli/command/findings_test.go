// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
)

// A check that could not run is never hidden behind the summary.
func TestSummaries(t *testing.T) {
	t.Parallel()
	failed, skipped, warning := finding.Finding{Status: finding.Failed}, finding.Finding{Status: finding.Skipped}, finding.Finding{Status: finding.Warning}
	for want, found := range map[string][]finding.Finding{
		"no check failed":              {finding.Passed("x"), finding.DoesNotApply("x")},
		"no check failed, warnings: 1": {warning},
		"no check failed, but not all could run, skipped: 1, warnings: 0": {finding.Passed("x"), skipped},
		"failed: 1, warnings: 0":             {failed, finding.Passed("x")},
		"failed: 1, skipped: 2, warnings: 1": {failed, skipped, skipped, warning},
	} {
		var out bytes.Buffer
		(&command.Page{W: &out}).Summary(finding.Summarize(found))
		if out.String() != want+"\n" {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}

func TestFindingsAreGroupedByPart(t *testing.T) {
	t.Parallel()
	found := []finding.Finding{
		{Status: finding.OK, About: "a", Text: "one"},
		{Status: finding.Failed, About: "a", Text: "two", Fix: "Do this:\nrun <<EOF\nEOF", Link: "https://example.com"},
		{Status: finding.Skipped, About: "b", Text: "three", Fix: "Ask."},
	}
	const want = "a\n  √ one\n  × two\n    Do this:\n    https://example.com\nrun <<EOF\nEOF\n\nb\n  ? three\n    Ask.\n\n"
	var out bytes.Buffer
	if (&command.Page{W: &out}).Findings(found); out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// Half of a command would act on other objects.
func TestANextStepIsNotBroken(t *testing.T) {
	t.Parallel()
	const fix = "Restart their workloads: kubectl rollout restart $(lanyard status --stale -o name -n shop) -n shop"
	var out strings.Builder
	p := &command.Page{W: &out, Width: 40}
	p.Finding(&finding.Finding{Status: finding.Warning, Text: "2 pods must be replaced, one of which has no credentials", Fix: fix})
	if want := "  ‼ 2 pods must be replaced, one of\n    which has no credentials\n    " + fix + "\n"; out.String() != want {
		t.Errorf("got\n%s, want\n%s", out.String(), want)
	}
}
