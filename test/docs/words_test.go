// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

// maxWords are the limits of pages, of directories and of groups of pages, all together:
// nobody reads a long book. Words are counted as wc -w does.
var maxWords = []struct {
	words int
	pages []string // names of files and directories
}{
	{20_000, []string{"docs"}},
	{1_020, []string{"README.md"}},
	{1_450, []string{"ARCHITECTURE.md"}},
	{370, []string{"docs/README.md"}},
	{850, []string{"docs/concepts/guard.md"}},
	{700, []string{"docs/concepts/security.md"}},
	{3_930, []string{"docs/reference"}},
	{2_130, []string{"docs/cli"}},
	{5_720, []string{
		"docs/quickstart-kind.md", "docs/clouds", "docs/apis.md", "docs/issuer.md", "docs/providers.md", "docs/gitops.md",
		"docs/identity-later.md", "docs/callers.md", "docs/hosted-control-planes.md", "docs/vcluster.md", "docs/image-pulls.md",
		"docs/trackers.md",
	}},
	// A user of one cloud reads these, from README to a pod with credentials.
	{4_000, wayTo("aws")},
	{4_000, wayTo("azure")},
	{4_000, wayTo("gcp")},
	{4_000, wayTo("vault")},
}

func wayTo(cloud string) []string {
	return []string{"README.md", "docs/quickstart-kind.md", "docs/install/README.md", "docs/clouds/" + cloud + ".md"}
}

func TestTheBookIsShort(t *testing.T) {
	all := pages(t)
	for _, limit := range maxWords {
		sum := 0
		for _, name := range limit.pages {
			of := wordsBelow(all, name)
			if of == 0 {
				t.Errorf("got no page %s", name)
			}
			sum += of
		}
		t.Logf("%d of %d words: %s", sum, limit.words, strings.Join(limit.pages, ", "))
		if sum > limit.words {
			t.Errorf("%s: got %d words, want at most %d", strings.Join(limit.pages, ", "), sum, limit.words)
		}
	}
}

// wordsBelow returns the words of a page, or of all pages below a directory.
func wordsBelow(all map[string]*page, name string) int {
	sum := 0
	for file, p := range all {
		if file == name || strings.HasPrefix(file, name+"/") {
			sum += len(bytes.Fields(p.source))
		}
	}
	return sum
}

// A reader decides by the first sentence whether to go on: it tells the result of reading.
func TestPagesBeginWithTheirResult(t *testing.T) {
	others := []string{"ARCHITECTURE.md", "test/rules.md", "test/threat-model.md", "test/e2e/README.md"}
	checked := 0
	for name, p := range pages(t) {
		if name == "docs/README.md" || !strings.HasPrefix(name, "docs/") &&
			!strings.HasPrefix(name, "test/e2e/suite/") && !slices.Contains(others, name) {
			continue
		}
		checked++
		if first := firstParagraph(p); !strings.HasPrefix(first, "At the end of this page, ") {
			t.Errorf("%s: got the first paragraph %.60q, want \"At the end of this page, \" and the result first", name, first)
		}
	}
	if checked < 60 {
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
