// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
)

// quantile returns the smallest value such that at least the share q of all
// values is less than or equal to it. values must not be empty.
func quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// median returns the middle value, or the upper one of two.
func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }
