// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"testing"

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
