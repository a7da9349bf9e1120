// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/base64"
	"testing"
)

func FuzzAppendBase64(f *testing.F) {
	all := make([]byte, 4096)
	for i := range all {
		all[i] = byte(i * 31 >> 3)
	}
	for n := range 40 {
		f.Add("", all[:n])
	}
	f.Add("before", all)
	f.Fuzz(func(t *testing.T, before string, src []byte) {
		got := string(appendBase64([]byte(before), src))
		if want := before + base64.StdEncoding.EncodeToString(src); got != want {
			t.Errorf("%x: got %s, want %s", src, got, want)
		}
	})
}
