// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package alloc

import "testing"

var sink []byte

//nolint:paralleltest // it counts what the process allocates
func TestLeast(t *testing.T) {
	const small, large = 1 << 20, 8 << 20
	for name, test := range map[string]struct {
		sizes []int // of each call
		want  int
		calls int
	}{
		"the first call stays within the limit":     {[]int{small}, small, 1},
		"another call stays within the limit":       {[]int{large, large, small}, small, 3},
		"every call is above the limit":             {[]int{large, large, large, large, large}, large, attempts},
		"every call is above it, but one less than": {[]int{large, large, large / 2, large, large}, large / 2, attempts},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			got := Least(small+small/2, func() {
				sink = make([]byte, test.sizes[calls])
				calls++
			})
			if got < test.want || got > test.want+small/2 || calls != test.calls {
				t.Errorf("got %d bytes in %d calls, want about %d in %d", got, calls, test.want, test.calls)
			}
		})
	}
}
