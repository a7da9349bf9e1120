// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// The guard and the policies contain the list, because CEL cannot walk up a path.
func TestPathsAboveAreThoseThatThePathIsInside(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string][]string{
		"/var/run/secrets/a/b": {"/run", "/run/secrets", "/run/secrets/a", "/var", "/var/run", "/var/run/secrets", "/var/run/secrets/a"},
		"/run/secrets/a":       {"/run", "/run/secrets", "/var/run", "/var/run/secrets"},
		"/var/run":             {"/var"},
		"/lanyard":             nil,
		"/srv/run/a":           {"/srv", "/srv/run"},
	} {
		got := pathsAbove(dir)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", dir, diff)
		}
		for _, other := range []string{"/run", "/run/secrets", "/var", "/var/run", "/var/run/secrets", "/var/run/secrets/a", "/srv", "/var/runner", "/x"} {
			inside := annotations.IsInside(dir, other) && !annotations.IsInside(other, dir)
			if inside != slices.Contains(got, other) {
				t.Errorf("%s: got %v, want %s in it: %t", dir, got, other, inside)
			}
		}
	}
}

func TestOtherPath(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{
		"/var/run/secrets/a": "/run/secrets/a", "/run/secrets/a": "/var/run/secrets/a", "/var/run": "/run", "/lanyard": "", "/var/runner": "", "/srv/run": "",
	} {
		if got := otherPath(dir); got != want {
			t.Errorf("%s: got %q, want %q", dir, got, want)
		}
	}
}
