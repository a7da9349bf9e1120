// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package texts contains shared rules for text: valid characters, how much of a value a
// message repeats, and escaping for terminals.
package texts

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the texts in a request. Text is truncated when it is read, so that no decision,
// log line or message copies a long one.
const (
	// MaxName is the length of the longest name of an object.
	MaxName = 253
	// MaxKey is the length of the longest key of an annotation: a prefix, a slash and 63
	// characters.
	MaxKey = 253 + 1 + 63
	// MaxShown limits the bytes of a value that a message repeats.
	MaxShown = 64
)

// Escape returns the text for one line of a terminal: runes that are not printable, and bytes
// that are not UTF-8, are escaped as in Go. Such a text cannot move the cursor, change the
// direction or begin a line.
func Escape(text string) string {
	var escaped strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			escaped.WriteRune(r)
		} else {
			quoted := strconv.Quote(text[:size])
			escaped.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return escaped.String()
}

// EscapeLines is Escape for a text of several lines. It indents the lines after the first.
func EscapeLines(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = Escape(lines[i])
	}
	return strings.Join(lines, "\n  ")
}

// controls matches the control characters that JSON allows in a string without escaping:
// DEL and the C1 controls, which are escape sequences for some terminals.
var controls = regexp.MustCompile("[\u007f-\u009f]")

// EscapeJSON escapes the control characters in the strings of a JSON text. YAML made
// from the text must not contain them either.
func EscapeJSON(text []byte) []byte {
	if bytes.IndexFunc(text, func(r rune) bool { return r >= 0x7f && r <= 0x9f }) < 0 {
		return text // almost always, and faster than the expression
	}
	return controls.ReplaceAllFunc(text, func(control []byte) []byte {
		r, _ := utf8.DecodeRune(control)
		return fmt.Appendf(nil, `\u%04x`, r)
	})
}

// Cut returns the text, or its first limit bytes and "..." if it is longer.
func Cut[T string | []byte](text T, limit int) string {
	if len(text) <= limit {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:limit]), "") + "..."
}

// Count returns a number and a noun, in the singular for 1: "1 pod", "2 pods".
func Count(n int, singular string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %ss", n, singular)
}

// IsVisible reports whether all characters are visible ASCII characters. A space is
// not visible.
func IsVisible(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// GUIDPattern matches a GUID, in upper or lower case.
const GUIDPattern = `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`

// GUIDGlobPattern matches a GUID, or its first eight digits followed by text that contains "*".
const GUIDGlobPattern = `^[0-9a-fA-F]{8}-([0-9a-fA-F-]*[*][0-9a-fA-F*-]*|[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})$`

var guid = regexp.MustCompile(GUIDPattern)

// IsGUID reports whether the text is a GUID, in upper or lower case.
func IsGUID(text string) bool { return guid.MatchString(text) }

// QuoteCEL returns the text as a string of the Common Expression Language, in one line.
func QuoteCEL(text string) string {
	quoted := strconv.Quote(text)
	return "'" + strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), "'", `\'`) + "'"
}
