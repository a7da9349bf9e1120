// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version returns the version of a program's build.
package version

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
)

// Version returns the version of the main module: v1.2.3 for a tag, and a
// pseudo-version that contains the commit otherwise. A build without version control
// returns "(devel)".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Page returns the address of a file of the repository, such as docs/install/upgrade.md#upgrade,
// as the file is in this version. Builds between releases use the files of main.
func Page(path string) string { return page(Version(), path) }

func page(version, path string) string {
	// Pseudo-versions have two hyphens, and builds with local changes have a "+".
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`).MatchString(version) {
		version = "main"
	}
	return "https://github.com/lanyard-dev/lanyard/blob/" + version + "/" + path
}

// String describes the binary: its version, Go and platform.
func String() string {
	return fmt.Sprintf("%s (%s, %s/%s)", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
