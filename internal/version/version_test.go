// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"strconv"
	"testing"
)

// revision returns the settings of a build from a clone.
func revision(modified bool) []debug.BuildSetting {
	return []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"},
		{Key: "vcs.modified", Value: strconv.FormatBool(modified)},
	}
}

func TestVersionIsThatOfTheModule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		info *debug.BuildInfo
		ok   bool
		want string
	}{
		"a release has its version": {&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, true, "v1.2.3"},
		"a commit without a tag has a pseudo-version": {&debug.BuildInfo{
			Main: debug.Module{Version: "v0.0.0-20300102030405-0123456789ab+dirty"}, Settings: revision(true),
		}, true, "v0.0.0-20300102030405-0123456789ab+dirty"},
		"a build with only a commit has that": {&debug.BuildInfo{
			Main: debug.Module{Version: "(devel)"}, Settings: revision(false),
		}, true, "devel-0123456789ab"},
		"a changed commit is marked":            {&debug.BuildInfo{Settings: revision(true)}, true, "devel-0123456789ab+dirty"},
		"a build without a commit is (devel)":   {&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, true, "(devel)"},
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
