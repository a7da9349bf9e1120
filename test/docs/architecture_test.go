// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

const architecture = "ARCHITECTURE.md"

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
