// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/exchange"
)

// Repairs returns the names of all repairs.
func (t Trust) Repairs() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if repair, found := strings.CutPrefix(name, "repair "); found {
			names = append(names, repair)
		}
	}
	return names
}

// RepairsOf returns the repairs of the causes of a provider.
func RepairsOf(provider string) ([]string, error) {
	all, err := exchange.Causes()
	var names []string
	for _, c := range all[provider] {
		if c.Repair != "" {
			names = append(names, c.Repair)
		}
	}
	return names, err
}
