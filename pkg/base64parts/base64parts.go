// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/base64"
	"encoding/binary"
)

// pairs holds, for each 12 bits, the two characters that stand for them in
// base64 (RFC 4648, section 4), as they lie in memory.
var pairs = newPairs()

func newPairs() *[1 << 12]uint16 {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var pairs [1 << 12]uint16
	for i := range pairs {
		pairs[i] = binary.LittleEndian.Uint16([]byte{alphabet[i>>6], alphabet[i&0x3f]})
	}
	return &pairs
}

// appendBase64 is base64.StdEncoding.AppendEncode, six bytes at a time: of the
// work for a large answer, a third was this.
func appendBase64(dst, src []byte) []byte {
	for len(src) >= 8 { // six of them are taken
		word := binary.BigEndian.Uint64(src)
		dst = binary.LittleEndian.AppendUint64(dst,
			uint64(pairs[word>>52])|uint64(pairs[word>>40&0xfff])<<16|
				uint64(pairs[word>>28&0xfff])<<32|uint64(pairs[word>>16&0xfff])<<48)
		src = src[6:]
	}
	return base64.StdEncoding.AppendEncode(dst, src)
}
