// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"
)

func TestVersionIsThatOfTheModule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		info *debug.BuildInfo
		ok   bool
		want string
	}{
		"a release has its version":             {&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, true, "v1.2.3"},
		"a binary without a version is unknown": {&debug.BuildInfo{}, true, "unknown"},
		"a binary without modules is unknown":   {nil, false, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := version(test.info, test.ok); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
