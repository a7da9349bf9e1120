// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package texts

// maxDistinct limits the bytes of a name that are compared. Container names, and annotation
// keys without a prefix, have at most 63.
const maxDistinct = 64

// Nearest returns the name that is closest to a mistyped one, the first if there are several,
// or "" if none is at least half equal.
func Nearest(mistyped string, names []string) string {
	mistyped = mistyped[:min(len(mistyped), maxDistinct)]
	nearest, least := "", len(mistyped)/2+1
	for _, name := range names {
		if d := distance(mistyped, name[:min(len(name), maxDistinct)]); d < least {
			nearest, least = name, d
		}
	}
	return nearest
}

// distance returns the number of bytes to insert, remove or replace to turn a into b
// (Levenshtein). It takes time in proportion to the product of the lengths.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // the distances of a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
