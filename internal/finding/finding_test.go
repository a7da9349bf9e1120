// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/version"
)

func TestFindingsSayWhatToDo(t *testing.T) {
	t.Parallel()
	f := Fail("", "Do it.", "install/README.md", "it is wrong: %s", "x")
	if want := "it is wrong: x\n  Do it.\n  " + version.Page("docs/install/README.md"); f.String() != want {
		t.Errorf("got %q, want %q", f.String(), want)
	}
	if f := Passed("right"); f.String() != "right" {
		t.Errorf("got %q", f.String())
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]Finding{
		`User "a" cannot list resource "mutatingwebhookconfigurations" in API group "admissionregistration.k8s.io" at the cluster scope`: {
			Text: "it cannot be read: you may not list mutatingwebhookconfigurations.admissionregistration.k8s.io",
			Fix:  "Ask an administrator for the ClusterRole lanyard-view.", Reason: MissingRight,
		},
		`User "a" cannot get path "/openid/v1/jwks"`: {
			Text: "it cannot be read: you may not get /openid/v1/jwks", Fix: "Ask an administrator for the ClusterRole lanyard-view.", Reason: MissingRight,
		},
		`User "a" cannot list resource "pods" in API group "" in the namespace "n"`: {
			Text: "it cannot be read: you may not list pods in the namespace n",
			Fix:  "Ask an administrator to bind the ClusterRole \"view\" to you in the namespace n.", Reason: MissingRight,
		},
		`User "a" cannot list resource "namespaces" in API group "" at the cluster scope`: {
			Text: "it cannot be read: you may not list namespaces", Fix: "Ask an administrator for the ClusterRole view.", Reason: MissingRight,
		},
		`exceeded quota`: {Text: "it cannot be read: pods is forbidden: exceeded quota", Fix: "Check the connection to the API server."},
	} {
		want.Status = Skipped
		if want.Reason == MissingRight {
			want.Link = version.Page("docs/operations/README.md#rights-of-readers")
		}
		if diff := cmp.Diff(want, Unreadable("it", fmt.Errorf("wrapped: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(message)))), cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Text" },
			cmp.Comparer(func(a, b string) bool {
				return strings.ReplaceAll(a, "wrapped: ", "") == strings.ReplaceAll(b, "wrapped: ", "")
			}))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if right := LackedRight(errors.New(`User "a" cannot get path "/"`)); right != "" {
		t.Errorf("got %s for an error that is not about rights", right)
	}
}

// Every finding that is not fine has one next step.
func TestEveryFindingHasANextStep(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../cli/*/*.go")
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
	if literals < 10 {
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
