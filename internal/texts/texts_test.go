// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package texts_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"":       "",
		"abcd":   "abcd",
		"abcde":  "abcd...",
		"abcü":   "abc...", // no half of a character
		"\xffab": "\xffab",
	} {
		if got := texts.Cut(value, 4); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "",
		`a "b" \ ümlaut 漢 √`:     `a "b" \ ümlaut 漢 √`,
		"\x1b[2J\x1b[1;1H":       `\x1b[2J\x1b[1;1H`,
		"a\r\nb\tc\x00\x7f":      `a\r\nb\tc\x00\x7f`,
		"\u009b31m\u202e\u200b":  `\u009b31m\u202e\u200b`,
		"\x9b31m\xff":            `\x9b31m\xff`, // the controls of 8-bit terminals
		"\ufffd":                 "\ufffd",
		`\x1b`:                   `\x1b`,
		"\U000e0041 \U0010ffff ": `\U000e0041 \U0010ffff `,
	} {
		got := texts.Escape(text)
		if got != want || texts.Escape(got) != got {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got, want := texts.EscapeLines("a\x1b\nb\r\n"), "a\\x1b\n  b\\r"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEscapeJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": "b"}`:                   `{"a": "b"}`,
		"{\n\"ü\": \"\u009b31m\x7f\"}": "{\n\"ü\": \"" + `\u009b31m\u007f` + "\"}",
		"\xff\u0085":                   "\xff" + `\u0085`,
	} {
		if got := string(texts.EscapeJSON([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestIsVisible(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"": true, "!~": true, "a b": false, "a\n": false, "\x7f": false, "ü": false} {
		if got := texts.IsVisible(value); got != want {
			t.Errorf("%q: got %t, want %t", value, got, want)
		}
	}
}

func TestIsGUID(t *testing.T) {
	t.Parallel()
	const guid = "00000000-0000-0000-0000-00000000abCD"
	for value, want := range map[string]bool{guid: true, guid[1:]: false, guid + "0": false, "g" + guid[1:]: false, "": false} {
		if got := texts.IsGUID(value); got != want {
			t.Errorf("%q: got %t, want %t", value, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods"} {
		if got := texts.Count(n, "pod"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
