// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// quantile returns the smallest value such that at least the share q of all
// values is less than or equal to it. values must not be empty.
func quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// median returns the middle value, or the upper one of two.
func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }

// sum returns the sum of all samples of a series with these labels, in Prometheus' text
// format.
func sum(text, series string, labels ...string) float64 {
	total := 0.0
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, series+"{")
		given, value, closed := strings.Cut(rest, "} ")
		missing := func(label string) bool { return !slices.Contains(strings.Split(given, ","), label) }
		if !found || !closed || slices.ContainsFunc(labels, missing) {
			continue
		}
		if number, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
			total += number
		}
	}
	return total
}
