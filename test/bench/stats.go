// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
)

// quantile gives the smallest value that at least the share q of the values is
// not above. There must be values.
func quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// median gives the middle value, of an even number of values the upper one.
func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }
