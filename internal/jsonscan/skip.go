// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"bytes"
	"math/bits"
	"strings"
)

const (
	// maxDepth is encoding/json's own limit of nesting.
	maxDepth = 10000
	// wordDepth is how many levels one call of skip keeps: a bit of a word for each.
	wordDepth = 64
)

// skip returns the index after the value at data[i], or 0 if it is malformed. It is
// nested in as many levels as outer says.
//
// Most of a review is skipped, and most of that time is spent here, so it is one
// loop.
//
//nolint:gocognit // function calls would cost more than the work
func skip(data []byte, i, outer int) int {
	var objects uint64 // a bit for each level, set for an object
	for depth := 0; ; {
		if objects&1 == 1 {
			if i = skipSpace(data, i); i >= len(data) || data[i] != '"' {
				return 0
			}
			if i = skipString(data, i+1); i == 0 {
				return 0
			}
			if i = skipSpace(data, i); i >= len(data) || data[i] != ':' {
				return 0
			}
			i++
		}
		if i = skipSpace(data, i); i >= len(data) {
			return 0
		}
		switch c := data[i]; c {
		case '"':
			i = skipString(data, i+1)
		case '{', '[':
			if outer+depth == maxDepth {
				return 0
			}
			if depth == wordDepth {
				i = skip(data, i, outer+depth)
				break
			}
			i = skipSpace(data, i+1)
			// The closing bracket is two characters later in ASCII.
			if i < len(data) && data[i] == c+2 {
				i++
				break
			}
			depth++
			// The two opening brackets differ only in this bit.
			objects = objects<<1 | uint64(c>>5&1)
			continue
		case 't', 'f', 'n':
			i = skipWord(data, i)
		default:
			i = skipNumber(data, i)
		}
		if i == 0 {
			return 0
		}
		for depth > 0 {
			if i = skipSpace(data, i); i >= len(data) {
				return 0
			}
			c := data[i]
			i++
			if c == ',' {
				break
			}
			if c != ']'+byte(objects&1)<<5 {
				return 0
			}
			depth--
			objects >>= 1
		}
		if depth == 0 {
			return i
		}
	}
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
// data[i], or 0. It checks eight bytes in one step, each in its own lane of a word.
func skipString(data []byte, i int) int {
	for i >= 0 && i < len(data) {
		if i < len(data)-7 {
			hits := stringHits(wordAt(data, i))
			if hits == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(hits) / 8
		}
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

// wordAt returns eight bytes, the first one lowest. The compiler makes one
// instruction of it, without the slice that binary.LittleEndian takes.
func wordAt(data []byte, i int) uint64 {
	_ = data[i+7]
	return uint64(data[i]) | uint64(data[i+1])<<8 | uint64(data[i+2])<<16 | uint64(data[i+3])<<24 |
		uint64(data[i+4])<<32 | uint64(data[i+5])<<40 | uint64(data[i+6])<<48 | uint64(data[i+7])<<56
}

// The lowest and the highest bit of each lane of a word.
const ones, highs = 0x0101010101010101, 0x8080808080808080

// stringHits sets the highest bit of a lane with a quote, a backslash or a control
// character. Lanes above a hit may be set too; the lowest one is right.
func stringHits(word uint64) uint64 {
	// Flipping this bit exchanges quote and space: the quote is then next to the
	// control characters, and the space is not.
	low := word ^ 0x02*ones
	backslash := word ^ '\\'*ones
	// The highest bit of a lane is set if the lane is below the new quote's
	// successor (quote, control characters), or is zero (backslash).
	return ((low-(' '+1)*ones)&^low | (backslash-ones)&^backslash) & highs
}

// escapeLength returns the length of the escape sequence at the start of data, or
// 0 if there is none.
func escapeLength(data []byte) int {
	switch {
	case len(data) < 2 || strings.IndexByte(`"\/bfnrtu`, data[1]) < 0:
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

func skipNumber(data []byte, i int) int {
	if data[i] == '-' {
		i++
	}
	first := i
	if i = skipDigits(data, i); i > first+1 && data[first] == '0' {
		return 0
	}
	if i > 0 && i < len(data) && data[i] == '.' {
		i = skipDigits(data, i+1)
	}
	if i > 0 && i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		i = skipDigits(data, i)
	}
	return i
}

// skipDigits returns the index after the digits at data[i], or 0 if there are none.
func skipDigits(data []byte, i int) int {
	first := i
	for i < len(data) && isDigit(data[i]) {
		i++
	}
	if i == first {
		return 0
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
