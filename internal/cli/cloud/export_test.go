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
