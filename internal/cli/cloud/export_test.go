// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"slices"
	"strings"
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

// Causes returns the causes of a provider in their order, and the errors of each as on a page.
func Causes(provider string) (names map[string][]string, texts []string, err error) {
	known, err := causes(provider)
	names = map[string][]string{}
	for i := range known {
		c := &known[i]
		name := "`" + c.Code + "`"
		if c.Message != "" {
			name += " (`" + c.Message + "`)"
		}
		if names[c.Text] == nil {
			texts = append(texts, c.Text)
		}
		names[c.Text] = append(names[c.Text], name)
	}
	return names, texts, err
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
