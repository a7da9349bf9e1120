// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documentation: links, generated pages and examples. It
// contains only tests.
package docs

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// root is the directory of the repository.
const root = "../.."

// page is a parsed Markdown file.
type page struct {
	path    string // relative to root, with slashes
	source  []byte
	tree    ast.Node
	anchors []string // of the headings, and of <a id="...">
}

var idPattern = regexp.MustCompile(`<a id="([\w-]+)">`)

// pages returns all Markdown files of the repository.
func pages(t *testing.T) map[string]*page {
	t.Helper()
	parser := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser()
	found := map[string]*page{}
	for _, name := range tree.Files(t, root) {
		if path.Ext(name) != ".md" {
			continue
		}
		source := []byte(tree.Read(t, root, name))
		p := &page{path: name, source: source, tree: parser.Parse(text.NewReader(source))}
		for _, heading := range nodes[*ast.Heading](p.tree) {
			p.anchors = append(p.anchors, newAnchor(textOf(heading, source), p.anchors))
		}
		for _, match := range idPattern.FindAllSubmatch(source, -1) {
			p.anchors = append(p.anchors, string(match[1]))
		}
		found[name] = p
	}
	if len(found) < 20 {
		t.Fatalf("got %d Markdown files in %s, want all of the repository", len(found), root)
	}
	return found
}

// nodes returns all nodes of one type in a tree.
func nodes[T ast.Node](tree ast.Node) []T {
	var found []T
	// The function never returns an error.
	_ = ast.Walk(tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if n, ok := node.(T); ok && entering {
			found = append(found, n)
		}
		return ast.WalkContinue, nil
	})
	return found
}

// textOf returns the text of a node without its formatting.
func textOf(node ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(node, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
		case *ast.String:
			b.Write(n.Value)
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// newAnchor returns the anchor that GitHub gives to a heading after the
// headings with the given anchors.
func newAnchor(heading string, taken []string) string {
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
	anchor := slug
	for i := 1; slices.Contains(taken, anchor); i++ {
		anchor = fmt.Sprintf("%s-%d", slug, i)
	}
	return anchor
}
