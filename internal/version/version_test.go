// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime"
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
