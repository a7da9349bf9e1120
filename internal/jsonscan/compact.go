// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonscan

import "math/bits"

// compactDepth is the deepest nesting that compactEnd handles: one bit of a word
// for each level.
const compactDepth = 64

// compactEnd returns the index after the value at data[i], if that is well-formed
// and written as API servers usually do: without white space, fractions and
// exponents. It returns 0 for anything else. Skip then takes the slow path, which
// handles such values and reports errors. FuzzSkip compares the two.
//
// Most of a review is skipped, and most of that time is spent here, so it is one
// loop.
//
//nolint:gocognit // function calls would cost more than the work
func compactEnd(data []byte, i int) int {
	var objects uint64 // a bit for each level, set for an object
	for depth := 0; ; {
		if objects&1 == 1 {
			if i >= len(data) || data[i] != '"' {
				return 0
			}
			if i = compactString(data, i+1); i == 0 || i >= len(data) || data[i] != ':' {
				return 0
			}
			i++
		}
		if i >= len(data) {
			return 0
		}
		switch c := data[i]; c {
		case '"':
			i = compactString(data, i+1)
		case '{', '[':
			i++
			// The closing bracket is two characters later in ASCII.
			if i < len(data) && data[i] == c+2 {
				i++
				break
			}
			if depth++; depth > compactDepth {
				return 0
			}
			// The two opening brackets differ only in this bit.
			objects = objects<<1 | uint64(c>>5&1)
			continue
		default:
			i = compactScalar(data, i)
		}
		if i == 0 {
			return 0
		}
		for depth > 0 {
			if i >= len(data) {
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

// compactString returns the index after the string whose first character is at
// data[i], or 0. Unlike plainEnd it accepts everything that may be in a string.
func compactString(data []byte, i int) int {
	for i >= 0 && i < len(data)-7 {
		hits := stringHits(wordAt(data, i))
		if hits == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(hits) / 8
		if data[i] == '"' {
			return i + 1
		}
		n := escapeLength(data[i:])
		if n == 0 {
			return 0
		}
		i += n
	}
	return lastString(data, i)
}

// lastString is compactString for the last bytes.
func lastString(data []byte, i int) int {
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

// compactScalar returns the index after the literal or the whole number at
// data[i], or 0.
func compactScalar(data []byte, i int) int {
	switch data[i] {
	case 't':
		return compactLiteral(data, i, "true")
	case 'f':
		return compactLiteral(data, i, "false")
	case 'n':
		return compactLiteral(data, i, "null")
	case '-':
		i++
	}
	first := i
	for i < len(data) && '0' <= data[i] && data[i] <= '9' {
		i++
	}
	switch {
	case i == first, data[first] == '0' && i > first+1:
		return 0
	case i < len(data) && (data[i] == '.' || data[i]|0x20 == 'e'):
		return 0
	}
	return i
}

func compactLiteral(data []byte, i int, word string) int {
	if len(data)-i < len(word) || string(data[i:i+len(word)]) != word {
		return 0
	}
	return i + len(word)
}
