// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// A merge of two branches that change the same entry keeps both versions, which may
// contradict each other. The flags and files that an entry names must exist.
func TestTheChangelogIsTrue(t *testing.T) {
	t.Parallel()
	_, unreleased, _ := strings.Cut(tree.Read(t, root, "CHANGELOG.md"), "\n## [Unreleased]\n")
	unreleased, _, _ = strings.Cut(unreleased, "\n## ")
	seen := map[string]bool{}
	for line := range strings.Lines(unreleased) {
		if line = strings.TrimSpace(line); len(line) > 30 && seen[line] {
			t.Errorf("CHANGELOG.md has this line twice: %s", line)
		}
		seen[line] = true
	}
	if strings.Contains(unreleased, "Not there yet") {
		t.Error("CHANGELOG.md lists features that do not exist, want them in ROADMAP.md")
	}
	product := productCode(t)
	for _, match := range regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(unreleased, -1) {
		if !strings.Contains(product, `"`+match[1]+`"`) {
			t.Errorf("CHANGELOG.md names the flag --%s, which no command has", match[1])
		}
	}
	for _, match := range regexp.MustCompile("`((?:docs|deploy|examples|pkg)/[^` ]*)`").FindAllStringSubmatch(unreleased, -1) {
		if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
			t.Errorf("CHANGELOG.md names %s: %v", match[1], err)
		}
	}
}

// productCode returns the Go code of internal and cmd, without tests.
func productCode(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	for _, file := range tree.Files(t, root) {
		top, _, _ := strings.Cut(file, "/")
		if (top == "internal" || top == "cmd") && strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			code.WriteString(tree.Read(t, root, file))
		}
	}
	return code.String()
}
