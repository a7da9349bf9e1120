// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tree lists the files of the repository for tests. It does not ask Git, which has
// nothing to say about an archive of the sources, or about a checkout of another user.
package tree

import (
	"io/fs"
	"os"
	"path"
	"slices"
)

// ignored are the names of files and directories that Git ignores, or that are built.
var ignored = []string{".git", "bin", ".cache", "bench-results", "node_modules", "dist", "certs"}

// Files returns the paths of all regular files below the root of the repository, relative to
// it and with slashes, without built files.
func Files(root string) ([]string, error) {
	var paths []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(ignored, path.Base(name)):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.Type().IsRegular():
			paths = append(paths, name)
		}
		return nil
	})
	return paths, err
}
