// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestIsInside(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a/b", true},
		{"/a/b/c", "/a/b", true},
		{"/a/bc", "/a/b", false},
		{"/a", "/a/b", false},
		{"/var/run/a", "/run/a", true},
		{"/run/a/b", "/var/run/a", true},
		{"/run/a/b", "/var/run", true},
		{"/run/a", "/run", true},
		{"/var/run/a", "/var", true},
		{"/run/a", "/var", false}, // a mount at /var hides the link, but not /run
		{"/var/runner/a", "/run", false},
		{"/srv/run/a", "/run/a", false},
	} {
		if got := annotations.IsInside(test.path, test.dir); got != test.want {
			t.Errorf("%s in %s: got %t, want %t", test.path, test.dir, got, test.want)
		}
	}
}

// The guard and the policies have the list, because CEL cannot walk up a path.
func TestPathsAboveAreThoseThatThePathIsInside(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string][]string{
		"/var/run/secrets/a/b": {"/run", "/run/secrets", "/run/secrets/a", "/var", "/var/run", "/var/run/secrets", "/var/run/secrets/a"},
		"/run/secrets/a":       {"/run", "/run/secrets", "/var/run", "/var/run/secrets"},
		"/var/run":             {"/var"},
		"/lanyard":             nil,
		"/srv/run/a":           {"/srv", "/srv/run"},
	} {
		got := annotations.PathsAbove(dir)
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
		if got := annotations.OtherPath(dir); got != want {
			t.Errorf("%s: got %q, want %q", dir, got, want)
		}
	}
}
