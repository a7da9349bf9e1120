// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// maxWords limits the words that people must keep up to date on the pages outside of docs.
const maxWords = 9300

// wordsOfPages limits the pages that grow. Other pages have otherWords.
var wordsOfPages = map[string]int{
	"test/threat-model.md": 850,
	"test/rules.md":        850,
	"README.md":            1150, // the home page
	"ARCHITECTURE.md":      800,
}

const otherWords = 600

// checkedByPrograms matches what other tests compare or run: generated sections, and blocks.
// The targets of links and comments are not words.
var checkedByPrograms = regexp.MustCompile("(?ms)<!-- begin (\\S+) -->.*?<!-- end \\S+ -->|<!--.*?-->|^ *```.*?^ *```$|\\]\\([^)]*\\)")

// wordsOf counts the words of a page that no program checks.
func wordsOf(p *page) int {
	words := 0
	for word := range strings.FieldsSeq(checkedByPrograms.ReplaceAllString(string(p.source), "]")) {
		if strings.ContainsAny(strings.ToLower(word), "abcdefghijklmnopqrstuvwxyz0123456789") {
			words++
		}
	}
	return words
}

func TestPagesOutsideOfTheBookAreShort(t *testing.T) {
	total := 0
	for name, p := range pages(t) {
		if strings.HasPrefix(name, "docs/") || strings.Contains(name, "/testdata/") || name == "charts/lanyard/README.md" {
			continue // the book, and generated pages
		}
		limit, grows := wordsOfPages[name]
		if !grows {
			limit = otherWords
		}
		got := wordsOf(p)
		if total += got; got > limit {
			t.Errorf("%s: got %d words, want at most %d: shorten it, or prove it with a test", name, got, limit)
		}
	}
	if total > maxWords {
		t.Errorf("got %d words outside of docs, want at most %d", total, maxWords)
	}
	t.Logf("%d words outside of docs", total)
}
