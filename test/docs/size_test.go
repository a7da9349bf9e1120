// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"strings"
	"testing"
)

// limits are the most words of the pages that match the patterns, all together, as wc -w
// counts them: more is not read.
var limits = []struct {
	words    int
	patterns []string
}{
	{5720, []string{
		"docs/quickstart-kind.md", "docs/clouds/*.md", "docs/apis.md", "docs/issuer.md", "docs/providers.md", "docs/gitops.md",
		"docs/identity-later.md", "docs/callers.md", "docs/hosted-control-planes.md", "docs/vcluster.md", "docs/image-pulls.md",
		"docs/trackers.md",
	}},
}

// A page is short, and its first sentence tells the reader the result of reading it.
func TestPagesAreShortAndBeginWithTheResult(t *testing.T) {
	const result = "At the end of this page, "
	for _, limit := range limits {
		words := 0
		for _, pattern := range limit.patterns {
			found := 0
			for name, p := range pages(t) {
				if match, err := path.Match(pattern, name); err != nil {
					t.Fatal(err)
				} else if !match {
					continue
				}
				found++
				words += len(strings.Fields(string(p.source)))
				if _, text, _ := strings.Cut(string(p.source), "\n\n"); !strings.HasPrefix(text, result) {
					t.Errorf("%s: got %.40q after the title, want %q", name, text, result)
				}
			}
			if found == 0 {
				t.Errorf("got no page %s", pattern)
			}
		}
		if words > limit.words {
			t.Errorf("%s: got %d words, want at most %d", strings.Join(limit.patterns, ", "), words, limit.words)
		}
	}
}
