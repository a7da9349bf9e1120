// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// A test that runs goroutines of the product in its own process needs the race
// detector. All others start the program, which is built with it.
func TestTheRaceDetectorWatchesTheProduct(t *testing.T) {
	t.Parallel()
	const module = "github.com/lanyard-dev/lanyard/"
	suites := strings.Fields(find(t, "Makefile", `(?m)^RACE_SUITES +:= (.*)$`))
	watched := map[string]bool{}
	for _, suite := range suites {
		watched[strings.TrimPrefix(suite, "./")] = false
	}
	command := exec.CommandContext(t.Context(), "go", "list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./test/...")
	command.Dir = root
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	concurrent := regexp.MustCompile(" " + module + "(cmd/webhook|internal/cli|internal/webhook|pkg/webhook)[^ ]*")
	for line := range strings.Lines(string(output)) {
		path, _, _ := strings.Cut(line, " ")
		name, isTest := strings.CutSuffix(strings.TrimPrefix(path, module), ".test")
		if !isTest {
			continue
		}
		found := strings.TrimSpace(concurrent.FindString(line))
		if _, listed := watched[name]; listed != (found != "") {
			t.Errorf("%s: got listed %t in RACE_SUITES of the Makefile, but it links %q", name, listed, found)
		}
		watched[name] = true
	}
	for name, seen := range watched {
		if !seen {
			t.Errorf("RACE_SUITES of the Makefile: got %s, want a package with tests", name)
		}
	}
}
