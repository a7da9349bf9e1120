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
