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
