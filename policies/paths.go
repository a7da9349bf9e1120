// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"path"
	"slices"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// CEL can neither follow a link nor walk up a path, so the policies contain the paths.

// pathsAbove lists the clean directories above dir in a container, without the root.
func pathsAbove(dir string) (above []string) {
	for dir = path.Dir(dir); len(dir) > 1; dir = path.Dir(dir) {
		above = append(above, dir)
		if other := otherPath(dir); other != "" {
			above = append(above, other)
		}
	}
	slices.Sort(above)
	return above
}

// otherPath returns the other path of a clean directory at or below /run or /var/run in a
// container; "" for another directory.
func otherPath(dir string) string {
	for _, roots := range [][2]string{{"/var/run", "/run"}, {"/run", "/var/run"}} {
		if annotations.IsAtOrBelow(dir, roots[0]) {
			return roots[1] + dir[len(roots[0]):]
		}
	}
	return ""
}
