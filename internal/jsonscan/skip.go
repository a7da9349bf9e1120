// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"bytes"
	"encoding/json"
	"strings"
)

// maxDepth is encoding/json's own limit of nesting.
const maxDepth = 10000

// skip returns the index after the value at data[i], or 0 if it is malformed. It is a
// loop: a recursion of maxDepth levels would take megabytes of stack for each request.
func skip(data []byte, i int) int {
	var usual [64]byte
	open := usual[:0] // the closing bracket of each level
	for {
		if n := len(open); n > 0 && open[n-1] == '}' {
			i = skipName(data, i)
		}
		if i = skipSpace(data, i); i >= len(data) {
			return 0
		}
		if c := data[i]; c == '{' || c == '[' {
			if len(open) == maxDepth {
				return 0
			}
			open = append(open, c+2) // in ASCII it comes two characters later
			if i = skipSpace(data, i+1); i >= len(data) || data[i] != c+2 {
				continue
			}
		} else {
			i = skipScalar(data, i)
		}
		if i, open = skipClosing(data, i, open); len(open) == 0 {
			return i
		}
	}
}

// skipScalar returns the index after the string, word or number at data[i], or 0.
func skipScalar(data []byte, i int) int {
	switch data[i] {
	case '"':
		return skipString(data, i+1)
	case 't', 'f', 'n':
		return skipWord(data, i)
	}
	return skipNumber(data, i)
}

// skipClosing returns the index after the closing brackets that follow a value, and
// after the comma that may follow the brackets. It returns the levels that are still
// open, and the index 0 if something else follows, or if i is 0: the value is malformed.
func skipClosing(data []byte, i int, open []byte) (after int, still []byte) {
	if i == 0 {
		return 0, nil
	}
	for len(open) > 0 {
		if i = skipSpace(data, i); i >= len(data) {
			return 0, nil
		}
		switch data[i] {
		case ',':
			return i + 1, open
		case open[len(open)-1]:
			i, open = i+1, open[:len(open)-1]
		default:
			return 0, nil
		}
	}
	return i, nil
}

// skipName returns the index after the name of a member and its colon, or len(data).
func skipName(data []byte, i int) int {
	if i = skipSpace(data, i); i < len(data) && data[i] == '"' {
		if i = skipString(data, i+1); i != 0 {
			if i = skipSpace(data, i); i < len(data) && data[i] == ':' {
				return i + 1
			}
		}
	}
	return len(data)
}

// skipSpace returns the index of the next byte that is not white space. The
// compiler inlines it, without the loop: an API server writes no white space.
func skipSpace(data []byte, i int) int {
	if i < len(data) && data[i] <= ' ' {
		return skipSpaces(data, i)
	}
	return i
}

func skipSpaces(data []byte, i int) int {
	for i < len(data) && strings.IndexByte(" \t\r\n", data[i]) >= 0 {
		i++
	}
	return i
}

// skipString returns the index after the string whose first character is at
// data[i], or 0.
func skipString(data []byte, i int) int {
	for i < len(data) {
		switch c := data[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			n := escapeLength(data[i:])
			if n == 0 {
				return 0
			}
			i += n
		case c < ' ':
			return 0
		default:
			i++
		}
	}
	return 0
}

// escapeLength returns the length of the escape sequence at the start of data, or
// 0 without an escape sequence.
func escapeLength(data []byte) int {
	switch {
	case len(data) < 2 || data[0] != '\\' || strings.IndexByte(`"\/bfnrtu`, data[1]) < 0:
		return 0
	case data[1] != 'u':
		return 2
	case len(data) < 6:
		return 0
	}
	for _, c := range data[2:6] {
		if !(isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f') {
			return 0
		}
	}
	return 6
}

func skipWord(data []byte, i int) int {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(data[i:], []byte(word)) {
			return i + len(word)
		}
	}
	return 0
}

// skipNumber returns the index after the number at data[i], or 0. Most numbers are whole
// numbers with few digits; encoding/json checks all others.
func skipNumber(data []byte, i int) int {
	end, whole := i, data[i] != '0'
	for end < len(data) && strings.IndexByte("0123456789+-.eE", data[end]) >= 0 {
		whole = whole && isDigit(data[end])
		end++
	}
	if !whole && !json.Valid(data[i:end]) || end == i {
		return 0
	}
	return end
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
