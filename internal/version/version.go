// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version returns the version of a program's build.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version returns the version of the main module: v1.2.3 for a tag, and for other
// commits a pseudo-version with the commit in it. A build without version control has
// "(devel)".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// String describes the binary: its version, Go and platform.
func String() string {
	return fmt.Sprintf("%s (%s, %s/%s)", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
