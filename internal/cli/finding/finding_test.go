// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package finding_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/finding"
	"github.com/lanyard-dev/lanyard/internal/probe"
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
		finding.Summarize(found).Print(&command.Page{W: &out})
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
	if finding.PrintSections(&command.Page{W: &out}, found); out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// Lines of package probe have no next step if they are only for the log of a Job.
func TestALineBecomesAFindingWithANextStep(t *testing.T) {
	t.Parallel()
	for _, line := range []probe.Line{probe.Skip("", "x"), probe.Fail("", "install/README.md", "x"), probe.NoRight("list pods", "x"), {Status: probe.Failed, Commands: "run\n"}} {
		if f := finding.Of(line); f.Fix == "" || f.Text != line.Text || strings.HasSuffix(f.Fix, "\n") {
			t.Errorf("got %+v of %+v", f, line)
		}
	}
	if f := finding.Of(probe.Passed("x")); f.Fix != "" {
		t.Errorf("got %+v", f)
	}
	if f := finding.Of(probe.NoRight("list pods", "x")); f.Reason != finding.MissingRight {
		t.Errorf("got %+v", f)
	}
}

// Every finding that is not fine has one next step.
func TestEveryFindingHasANextStep(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	literals := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			function, isFunction := n.(*ast.FuncDecl)
			if !isFunction || function.Body == nil {
				return true
			}
			for _, literal := range bad(function) {
				if literals++; !slices.Contains(keys(literal), "Fix") && !assigns(function, "Fix") {
					t.Errorf("%s: a finding without a next step", set.Position(literal.Pos()))
				}
			}
			return true
		})
	}
	if literals < 30 {
		t.Errorf("got %d findings, want more: the pattern is wrong", literals)
	}
}

// bad returns the findings in a function that are not fine.
func bad(function *ast.FuncDecl) (found []*ast.CompositeLit) {
	ast.Inspect(function.Body, func(n ast.Node) bool {
		if literal, ok := n.(*ast.CompositeLit); ok {
			for _, element := range literal.Elts {
				pair, isPair := element.(*ast.KeyValueExpr)
				if !isPair {
					continue
				}
				value, isSelector := pair.Value.(*ast.SelectorExpr)
				if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Status" && isSelector && slices.Contains([]string{"Failed", "Warning", "Skipped"}, value.Sel.Name) {
					found = append(found, literal)
				}
			}
		}
		return true
	})
	return found
}

// keys returns the fields that a literal sets.
func keys(literal *ast.CompositeLit) (names []string) {
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				names = append(names, key.Name)
			}
		}
	}
	return names
}

// assigns reports whether a function assigns a field.
func assigns(function *ast.FuncDecl, field string) (found bool) {
	ast.Inspect(function.Body, func(n ast.Node) bool {
		if assignment, ok := n.(*ast.AssignStmt); ok {
			for _, left := range assignment.Lhs {
				selector, ok := left.(*ast.SelectorExpr)
				found = found || ok && selector.Sel.Name == field
			}
		}
		return true
	})
	return found
}
