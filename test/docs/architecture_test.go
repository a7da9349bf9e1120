// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

const architecture = "ARCHITECTURE.md"

// goPackages returns the directories with Go code of the product.
func goPackages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, name := range tree.Files(t, root) {
		top, _, _ := strings.Cut(name, "/")
		if !slices.Contains([]string{"cmd", "internal", "pkg"}, top) || strings.HasSuffix(name, "_test.go") || path.Ext(name) != ".go" {
			continue
		}
		if directory := path.Dir(name); !slices.Contains(found, directory) {
			found = append(found, directory)
		}
	}
	return found
}

// packageRow matches the first cell of a row of the table of packages.
var packageRow = regexp.MustCompile("(?m)^\\| (`(?:cmd|internal|pkg)/[^|]*) \\|")

// namedPackages returns the packages in the table. A name after a comma has the directory
// of the first.
func namedPackages(text string) []string {
	var found []string
	for _, row := range packageRow.FindAllStringSubmatch(text, -1) {
		names := strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")
		for _, name := range names {
			if name != names[0] {
				name = path.Join(path.Dir(names[0]), name)
			}
			found = append(found, name)
		}
	}
	return found
}

func TestTheArchitectureNamesEachPackage(t *testing.T) {
	named := namedPackages(tree.Read(t, root, architecture))
	for _, directory := range goPackages(t) {
		if !slices.Contains(named, directory) && directory != "cmd/webhook/app" {
			t.Errorf("%s has no package %s", architecture, directory)
		}
	}
	for i, name := range named {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("%s names %s, which does not exist", architecture, name)
		}
		// pkg has a second table, for operators.
		if slices.Contains(named[:i], name) && !strings.HasPrefix(name, "pkg/") {
			t.Errorf("%s names %s twice", architecture, name)
		}
	}
}

// namedFile matches a path of the product in code.
var namedFile = regexp.MustCompile("`((?:cmd|internal|pkg|test|charts|examples)/[\\w/.*-]+)`")

func TestTheFilesInTheArchitectureExist(t *testing.T) {
	checked := 0
	for _, match := range namedFile.FindAllStringSubmatch(tree.Read(t, root, architecture), -1) {
		if strings.Contains(match[1], "NAME") {
			continue
		}
		checked++
		if found, err := filepath.Glob(filepath.Join(root, match[1])); err != nil || len(found) == 0 {
			t.Errorf("%s names %s, which does not exist", architecture, match[1])
		}
	}
	if checked < 20 {
		t.Errorf("got %d files, want all files of the page", checked)
	}
}
