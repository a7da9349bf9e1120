// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The messages of these packages do not use the idiom of Go's tests, "got X, want Y". A
// message begins with what is wrong, and ends with what to do.
func TestMessagesAreForUsers(t *testing.T) {
	t.Parallel()
	idiom := regexp.MustCompile(`\b(got|want)\b`)
	for _, dir := range []string{".", "../../cmd/lanyard", "command", "cluster", "../finding", "check", "inject", "migrate", "workload"} {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: got %v and %v", dir, paths, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING && idiom.MatchString(literal.Value) {
					t.Errorf("%s: %s", files.Position(literal.Pos()), literal.Value)
				}
				_, tags := n.(*ast.StructType) // of its fields, which are not messages
				return !tags
			})
		}
	}
}
