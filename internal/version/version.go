// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version returns the version of Lanyard in a program.
package version

import (
	"cmp"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
)

// module is the path of the module that this package is in.
const module = "github.com/lanyard-dev/lanyard"

// Version returns the version of Lanyard in this program: v1.2.3 for a tag, and for other
// commits a pseudo-version with the commit in it. A build without version control has
// "(devel)".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return of(info)
	}
	return unknown
}

const unknown = "unknown"

// of returns the version in a program that is Lanyard's, or that embeds it.
func of(info *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module {
			return cmp.Or(cmp.Or(m.Replace, m).Version, unknown) // a directory has no version
		}
	}
	return unknown
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
