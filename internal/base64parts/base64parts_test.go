// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package base64parts_test

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/base64parts"
)

// FuzzAppend puts a constant at places of a text, as the gaps say, and compares
// with encoding/base64.
func FuzzAppend(f *testing.F) {
	all := make([]byte, 4096)
	for i := range all {
		all[i] = byte(i * 31 >> 3)
	}
	for n := range 40 {
		f.Add("", all[:n], []byte{0, byte(n), 1, 2, 3}, all[:n%7])
	}
	f.Add("before", all, []byte{}, []byte(nil))
	f.Add("before", all, []byte{5, 0, 0, 4, 255}, all[7:300])
	f.Fuzz(func(t *testing.T, before string, filling, gaps, constant []byte) {
		var text []byte
		var parts []base64parts.Part
		known := base64parts.NewConstant(constant)
		for _, gap := range gaps {
			text = append(text, filling[:min(int(gap), len(filling))]...)
			parts = append(parts, base64parts.Part{At: len(text), Constant: known})
			text = append(text, constant...)
		}
		text = append(text, filling...)
		got := string(base64parts.Append([]byte(before), bytes.Clone(text), parts))
		if want := before + base64.StdEncoding.EncodeToString(text); got != want {
			t.Errorf("%x with %x after gaps %v: got %s, want %s", filling, constant, gaps, got, want)
		}
	})
}
