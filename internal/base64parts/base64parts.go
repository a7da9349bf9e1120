// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package base64parts encodes texts in base64 (RFC 4648, section 4) of which
// long parts are the same again and again: those are encoded once.
package base64parts

import (
	"encoding/base64"
	"encoding/binary"
	"sync"
)

// Constant is a part that stands in many texts. It may be used by many at a time.
type Constant struct {
	text []byte
	// encodings has, for each number of bytes that go to the group of three
	// before, the whole groups after them. Many parts only ever stand at places of
	// one kind, so each is made when it is first needed.
	encodings [3]struct {
		once sync.Once
		text []byte
	}
}

// NewConstant takes a part, which must not change any more.
func NewConstant(text []byte) *Constant { return &Constant{text: text} }

// encoded gives the encoding of the whole groups after the first bytes.
func (c *Constant) encoded(skip int) []byte {
	e := &c.encodings[skip]
	e.once.Do(func() {
		if whole := c.whole(skip); whole > 0 {
			e.text = appendAll(make([]byte, 0, base64.StdEncoding.EncodedLen(whole)), c.text[skip:skip+whole])
		}
	})
	return e.text
}

// whole is the length of the whole groups after the first bytes.
func (c *Constant) whole(skip int) int { return max(len(c.text)-skip, 0) / 3 * 3 }

// Part says that a constant stands at a place of a text.
type Part struct {
	At       int
	Constant *Constant
}

// Append appends the encoding of the text. Each of the parts has to stand in the
// text as it says; they are in the order of the text, and none overlaps another.
func Append(dst, text []byte, parts []Part) []byte {
	done := 0 // always whole groups
	for _, p := range parts {
		skip := (3 - p.At%3) % 3
		encoded := p.Constant.encoded(skip)
		if encoded == nil {
			continue
		}
		dst = appendAll(dst, text[done:p.At+skip])
		dst = append(dst, encoded...)
		done = p.At + skip + p.Constant.whole(skip)
	}
	return appendAll(dst, text[done:])
}

// pairs holds, for each 12 bits, the two characters that stand for them, as they
// lie in memory.
var pairs = newPairs()

func newPairs() *[1 << 12]uint16 {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var pairs [1 << 12]uint16
	for i := range pairs {
		pairs[i] = binary.LittleEndian.Uint16([]byte{alphabet[i>>6], alphabet[i&0x3f]})
	}
	return &pairs
}

// appendAll is base64.StdEncoding.AppendEncode, six bytes at a time.
func appendAll(dst, src []byte) []byte {
	for len(src) >= 8 { // six of them are taken
		word := binary.BigEndian.Uint64(src)
		dst = binary.LittleEndian.AppendUint64(dst,
			uint64(pairs[word>>52])|uint64(pairs[word>>40&0xfff])<<16|
				uint64(pairs[word>>28&0xfff])<<32|uint64(pairs[word>>16&0xfff])<<48)
		src = src[6:]
	}
	for len(src) >= 3 {
		group := uint(src[0])<<16 | uint(src[1])<<8 | uint(src[2])
		dst = binary.LittleEndian.AppendUint32(dst, uint32(pairs[group>>12])|uint32(pairs[group&0xfff])<<16)
		src = src[3:]
	}
	if len(src) == 0 {
		return dst
	}
	return base64.StdEncoding.AppendEncode(dst, src)
}
