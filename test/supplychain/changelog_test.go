// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A merge of two branches that change the same entry keeps both, which then contradict each
// other. Flags and files that an entry names exist.
func TestTheChangelogIsTrue(t *testing.T) {
	t.Parallel()
	_, unreleased, _ := strings.Cut(read(t, "CHANGELOG.md"), "\n## [Unreleased]\n")
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
	for _, match := range regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(unreleased, -1) {
		search := exec.CommandContext(t.Context(), "git", "-C", root, "grep", "--quiet", "--fixed-strings", `"`+match[1]+`"`, "--", "internal/*.go", "cmd/*.go", ":!*_test.go")
		if err := search.Run(); err != nil {
			t.Errorf("CHANGELOG.md names the flag --%s, which no command has (%v)", match[1], err)
		}
	}
	for _, match := range regexp.MustCompile("`((?:docs|deploy|examples|pkg)/[^` ]*)`").FindAllStringSubmatch(unreleased, -1) {
		if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
			t.Errorf("CHANGELOG.md names %s: %v", match[1], err)
		}
	}
}
