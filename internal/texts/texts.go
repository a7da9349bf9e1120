// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package texts has rules about text that several packages share: which characters a
// value may have, and how much of a value a message repeats.
package texts

import (
	"regexp"
	"strings"
)

// Limits of the texts in a request. A text is cut where it is read, so that no decision,
// log line or message copies a long one.
const (
	// MaxName is the length of the longest name of an object.
	MaxName = 253
	// MaxKey is the length of the longest key of an annotation: a prefix, a slash and 63
	// characters.
	MaxKey = 253 + 1 + 63
	// MaxShown is how many bytes of a value a message repeats.
	MaxShown = 64
)

// Cut returns the text, or its first limit bytes and "..." if it is longer.
func Cut[T string | []byte](text T, limit int) string {
	if len(text) <= limit {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:limit]), "") + "..."
}

// IsVisible reports whether all characters are visible ASCII characters. A space is
// not visible.
func IsVisible(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

var guid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// IsGUID reports whether the text is a GUID, in upper or lower case.
func IsGUID(text string) bool { return guid.MatchString(text) }
