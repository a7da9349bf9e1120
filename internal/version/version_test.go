// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestTheDescriptionHasVersionAndPlatform(t *testing.T) {
	t.Parallel()
	if got := Version(); got == "" {
		t.Error("got an empty version")
	}
	if got := String(); !strings.HasPrefix(got, Version()+" (go") || !strings.Contains(got, runtime.GOOS+"/"+runtime.GOARCH) {
		t.Errorf("got %q, want version, Go and platform", got)
	}
}

// An operator that embeds the webhooks has a version of its own.
func TestTheVersionIsThatOfLanyard(t *testing.T) {
	t.Parallel()
	operator := debug.Module{Path: "example.com/operator", Version: "v9.0.0"}
	other := &debug.Module{Path: "example.com/other", Version: "v8.0.0"}
	for name, test := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"its own program":     {debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}, Deps: []*debug.Module{other}}, "v1.2.3"},
		"an operator":         {debug.BuildInfo{Main: operator, Deps: []*debug.Module{other, {Path: module, Version: "v1.2.3"}}}, "v1.2.3"},
		"a fork":              {debug.BuildInfo{Main: operator, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.3.0"}}}}, "v1.3.0"},
		"a directory":         {debug.BuildInfo{Main: operator, Deps: []*debug.Module{{Path: module, Version: "v0.0.0", Replace: &debug.Module{Path: "../lanyard"}}}}, "unknown"},
		"no version":          {debug.BuildInfo{Main: debug.Module{Path: module}}, "unknown"},
		"a build without any": {debug.BuildInfo{}, "unknown"},
	} {
		if got := of(&test.info); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestPagesAreThoseOfTheVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3":                               "v1.2.3",
		"v1.2.3-rc.1":                          "v1.2.3-rc.1",
		"(devel)":                              "main",
		"unknown":                              "main",
		"v1.2.3+dirty":                         "main",
		"v0.0.0-20260102030405-0123456789ab":   "main",
		"v1.2.4-0.20260102030405-0123456789ab": "main",
		"v1.2.3-rc.1.0.20260102030405-0123456789ab":  "main",
		"v1.2.4-0.20260102030405-0123456789ab+dirty": "main",
	} {
		want = "https://github.com/lanyard-dev/lanyard/blob/" + want + "/docs/install/upgrade.md#upgrade"
		if got := page(version, "docs/install/upgrade.md#upgrade"); got != want {
			t.Errorf("version %s: got %s, want %s", version, got, want)
		}
	}
	if got, want := Page("a.md"), page(Version(), "a.md"); got != want {
		t.Errorf("got %s, want the page of this build, %s", got, want)
	}
}
