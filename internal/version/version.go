// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version says which build of a program this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version returns the version of the main module, such as v1.2.3 or (devel).
func Version() string { return version(debug.ReadBuildInfo()) }

// version takes what debug.ReadBuildInfo returns.
func version(info *debug.BuildInfo, ok bool) string {
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// String describes the binary: its version, Go and platform.
func String() string {
	return fmt.Sprintf("%s (%s, %s/%s)", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
