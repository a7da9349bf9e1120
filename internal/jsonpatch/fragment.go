// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonpatch

import (
	"bytes"
	"encoding/base64"
	"sync"
)

// Fragment is a list of JSON values that are in many patches. It does not change,
// and may be used concurrently.
//
// A patch is sent in base64 (RFC 4648, section 4). Most of the patch for a pod
// consists of fragments, so each is encoded once, and not in every patch.
type Fragment struct {
	elements [][]byte
	text     []byte // the elements with commas between them
	// encodings[n] is the fragment without its first n bytes, in base64. base64
	// encodes groups of three bytes, and the first n bytes of the fragment complete
	// the group that the text before it has begun. Each encoding is made when it is
	// first needed.
	encodings [3]struct {
		once sync.Once
		text []byte
	}
}

// NewFragment returns a Fragment of these values, which must not change any more.
func NewFragment(values ...[]byte) *Fragment {
	return &Fragment{elements: values, text: bytes.Join(values, []byte(","))}
}

// placed is a fragment in the text of a patch.
type placed struct {
	at       int // its offset
	fragment *Fragment
}

// append appends all elements to the patch.
func (p *Patch) append(f *Fragment) {
	p.prepared = append(p.prepared, placed{len(p.text), f})
	p.text = append(p.text, f.text...)
}

// AppendBase64 appends the patch in base64, as an AdmissionResponse has it.
func (p *Patch) AppendBase64(dst []byte) []byte {
	text := p.Bytes()
	done := 0 // always whole groups of three
	for _, f := range p.prepared {
		skip := (3 - f.at%3) % 3
		if encoded, n := f.fragment.encoded(skip); n > 0 {
			dst = base64.StdEncoding.AppendEncode(dst, text[done:f.at+skip])
			dst = append(dst, encoded...)
			done = f.at + skip + n
		}
	}
	return base64.StdEncoding.AppendEncode(dst, text[done:])
}

// encoded returns the encoding of all whole groups of three bytes that follow the
// first skip bytes, and the number n of bytes in these groups.
func (f *Fragment) encoded(skip int) (text []byte, n int) {
	n = max(len(f.text)-skip, 0) / 3 * 3
	e := &f.encodings[skip]
	e.once.Do(func() {
		e.text = base64.StdEncoding.AppendEncode(nil, f.text[min(skip, len(f.text)):min(skip, len(f.text))+n])
	})
	return e.text, n
}
