// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notWritten are pages whose sentences are elsewhere: in the comments of the chart's values,
// and as items of a list for people who know the program.
var notWritten = []string{"CHANGELOG.md", "charts/lanyard/README.md"}

const (
	maxReadmeLines   = 150
	maxSentenceWords = 30
)

// endOfSentence is followed by the next sentence.
var endOfSentence = regexp.MustCompile(`[.!?]["')]*\s+`)

// sentences returns the sentences of a page. A heading, a list item and a cell
// of a table end a sentence, too. A piece of code is one word.
func sentences(p *page) []string {
	var found []string
	blocksOfText(p, func(_ int, text string) {
		found = append(found, endOfSentence.Split(text, -1)...)
	})
	return found
}

func TestTheReadmeIsShort(t *testing.T) {
	if lines := bytes.Count(readFile(t, "README.md"), []byte("\n")); lines > maxReadmeLines {
		t.Errorf("README.md: got %d lines, want at most %d", lines, maxReadmeLines)
	}
}

func TestSentencesAreShort(t *testing.T) {
	checked := 0
	for name, p := range pages(t) {
		if slices.Contains(notWritten, name) {
			continue
		}
		for _, sentence := range sentences(p) {
			checked++
			if words := len(strings.Fields(sentence)); words > maxSentenceWords {
				t.Errorf("%s: got a sentence of %d words, want at most %d: %s", name, words, maxSentenceWords, sentence)
			}
		}
	}
	if checked < 2000 {
		t.Errorf("got %d sentences, want the sentences of all pages", checked)
	}
}
