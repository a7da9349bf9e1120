// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// The race detector must watch every package of lanyard-webhook that starts a goroutine or
// has a lock.
func TestTheRaceDetectorWatchesTheWebhook(t *testing.T) {
	t.Parallel()
	const module = "github.com/lanyard-dev/lanyard/"
	var watched []string
	for pattern := range strings.FieldsSeq(find(t, "Makefile", `(?m)^RACE_PACKAGES *:= (.*)$`)) {
		watched = append(watched, module+strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "..."))
	}
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{.ImportPath}} {{join .GoFiles " "}}`, "./cmd/webhook")
	command.Dir = root
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	concurrent := regexp.MustCompile(`(?m)^\t+go [\w.]+[({]|\.Go\(|sync\.(RW)?Mutex`)
	found := 0
	for line := range strings.Lines(string(output)) {
		path, files, _ := strings.Cut(line, " ")
		directory, ours := strings.CutPrefix(path, module)
		if !ours || !slices.ContainsFunc(strings.Fields(files), func(file string) bool {
			return concurrent.MatchString(tree.Read(t, root, directory+"/"+file))
		}) {
			continue
		}
		found++
		if !slices.ContainsFunc(watched, func(prefix string) bool { return strings.HasPrefix(path+"/", prefix) }) {
			t.Errorf("%s has a goroutine or a lock: got no pattern for it in RACE_PACKAGES of the Makefile: %q", path, watched)
		}
	}
	if found < 5 {
		t.Errorf("got %d packages with a goroutine or a lock, want at least 5", found)
	}
}

// The tests that "make test-race" skips must be in the package that "make test-plain" runs.
func TestWhatTheRaceDetectorSkipsExists(t *testing.T) {
	t.Parallel()
	directory := strings.TrimPrefix(find(t, "Makefile", `(?m)^UNRACED *:= (.*)$`), "./")
	entries, err := os.ReadDir(root + "/" + directory)
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), "_test.go") {
			code.WriteString(tree.Read(t, root, directory+"/"+entry.Name()))
		}
	}
	for name := range strings.SplitSeq(find(t, "Makefile", `(?m)^UNRACED_TESTS *:= (.*)$`), "|") {
		if !strings.Contains(code.String(), "\nfunc "+name+"(") {
			t.Errorf("UNRACED_TESTS of the Makefile: got %s, want a test of %s", name, directory)
		}
	}
}
