// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version returns the version of a program's build.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// devel is Go's version of a build without one.
const devel = "(devel)"

// Version returns the version of the main module: v1.2.3 for a tag, and for other
// commits a pseudo-version with the commit in it. If Go does not know the version
// but the commit, it returns devel-COMMIT; if it knows neither, "(devel)".
func Version() string { return version(debug.ReadBuildInfo()) }

// version takes the results of debug.ReadBuildInfo.
func version(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "unknown"
	}
	if info.Main.Version != "" && info.Main.Version != devel {
		return info.Main.Version
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return cmp.Or(info.Main.Version, "unknown")
	}
	revision = revision[:min(len(revision), 12)] // as in a pseudo-version
	if settings["vcs.modified"] == "true" {
		revision += "+dirty"
	}
	return "devel-" + revision
}

// String describes the binary: its version, Go and platform.
func String() string {
	return fmt.Sprintf("%s (%s, %s/%s)", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
