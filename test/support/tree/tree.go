// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tree gives tests access to the files of the repository, and to its Makefile. It does
// not use Git, which lists no files of an unpacked archive, and refuses to read a checkout that
// belongs to another user.
package tree

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"
)

// ignored are the names of files and directories that Git ignores, or that are built.
var ignored = []string{".git", "bin", ".cache", "bench-results", "node_modules", "dist", "certs"}

// Files returns the paths of all regular files below the root of the repository, relative to
// it and with slashes, without built files.
func Files(t testing.TB, root string) []string {
	t.Helper()
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
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// Read returns the content of a file. Its name is relative to the root of the repository.
func Read(t testing.TB, root, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Make runs make in the root of the repository, and returns its output.
func Make(t testing.TB, root string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory"}, arguments...)...)
	command.Dir = root
	output, err := command.CombinedOutput()
	return string(output), err
}
