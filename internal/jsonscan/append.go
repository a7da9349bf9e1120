// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"bytes"
	"encoding/json"
	"strings"
)

// AppendString appends text to dst as a JSON string. Invalid UTF-8 becomes U+FFFD,
// as in encoding/json.
func AppendString(dst []byte, text string) []byte {
	needsEncoding := func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
	if !strings.ContainsFunc(text, needsEncoding) {
		return append(append(append(dst, '"'), text...), '"')
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // it would take six bytes for <, > and &
	_ = encoder.Encode(text)     // a string can always be encoded
	return append(dst, bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))...)
}
