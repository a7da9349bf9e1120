// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"slices"
	"strings"
)

// Repairs returns the names of all repairs.
func (t *Trust) Repairs() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(t.texts)) {
		if repair, found := strings.CutPrefix(name, "repair "); found {
			names = append(names, repair)
		}
	}
	return names
}

// RepairsOf returns the repairs of the causes of a provider.
func RepairsOf(provider string) ([]string, error) {
	known, err := causes(provider)
	var names []string
	for i := range known {
		if known[i].Repair != "" {
			names = append(names, known[i].Repair)
		}
	}
	return names, err
}
