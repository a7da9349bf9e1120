// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

// The book is short: nobody reads a long one.
const (
	maxBookWords = 20_000
	maxPathWords = 4_000
)

// maxWords are the limits of pages and directories.
var maxWords = map[string]int{
	"README.md":                 1_000,
	"ARCHITECTURE.md":           1_400,
	"docs/README.md":            370,
	"docs/concepts/guard.md":    820,
	"docs/concepts/security.md": 700,
	"docs/reference":            3_900,
	"docs/cli":                  2_080,
}

// words counts as wc -w does.
func words(p *page) int { return len(bytes.Fields(p.source)) }

// wordsBelow returns the words of a page, or of all pages below a directory.
func wordsBelow(all map[string]*page, name string) int {
	sum := 0
	for file, p := range all {
		if file == name || strings.HasPrefix(file, name+"/") {
			sum += words(p)
		}
	}
	return sum
}

func TestTheBookIsShort(t *testing.T) {
	all := pages(t)
	book := wordsBelow(all, "docs")
	t.Logf("docs/ has %d words", book)
	if book > maxBookWords {
		t.Errorf("docs/: got %d words, want at most %d", book, maxBookWords)
	}
	for name, limit := range maxWords {
		if got := wordsBelow(all, name); got == 0 || got > limit {
			t.Errorf("%s: got %d words, want at most %d", name, got, limit)
		}
	}
}

// A user of one cloud reads these pages, from README to a pod with credentials.
func TestTheWayToAWorkingPodIsShort(t *testing.T) {
	all := pages(t)
	common := []string{"README.md", path.Join("docs", "quickstart-kind.md"), path.Join("docs", "install", "README.md")}
	for _, cloud := range []string{"aws", "azure", "gcp", "vault"} {
		sum := 0
		for _, name := range append(slices.Clone(common), "docs/clouds/"+cloud+".md") {
			if all[name] == nil {
				t.Errorf("got no page %s", name)
				continue
			}
			sum += words(all[name])
		}
		t.Logf("%s: %d words", cloud, sum)
		if sum > maxPathWords {
			t.Errorf("%s: got %d words from README to a working pod, want at most %d", cloud, sum, maxPathWords)
		}
	}
}

// withResult are the pages and directories whose pages begin with the result for the reader.
var withResult = []string{
	"ARCHITECTURE.md", "docs/cli", "docs/concepts", "docs/reference", "test/rules.md", "test/threat-model.md",
	"test/e2e/README.md", "test/e2e/suite",
}

// A reader decides by the first sentence whether to go on.
func TestPagesBeginWithTheirResult(t *testing.T) {
	checked := 0
	for name, p := range pages(t) {
		if !slices.ContainsFunc(withResult, func(with string) bool { return name == with || strings.HasPrefix(name, with+"/") }) {
			continue
		}
		checked++
		first := firstParagraph(p)
		if !strings.HasPrefix(first, "After this page") {
			t.Errorf("%s: got the first paragraph %.60q, want \"After this page\" and the result first", name, first)
		}
	}
	if checked < 25 {
		t.Errorf("got %d pages, want all that must begin so", checked)
	}
}

// firstParagraph returns the text after the title.
func firstParagraph(p *page) string {
	for node := p.tree.FirstChild(); node != nil; node = node.NextSibling() {
		if paragraph, ok := node.(*ast.Paragraph); ok {
			return textOf(paragraph, p.source, nil)
		}
	}
	return ""
}
