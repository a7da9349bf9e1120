// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// A value that make writes into a recipe is run by the shell. The name of a Git tag may
// contain ";".
func TestMakeRunsNoValueOfAVariable(t *testing.T) {
	t.Parallel()
	for call, value := range map[string]string{
		"release-check VERSION":  "v1;touch x",
		"release-notes VERSION":  "v1;touch x",
		"release-build VERSION":  "v1$(touch x)",
		"test-versions MINORS":   "1.30;touch x",
		"e2e E2E":                "cli;touch x",
		"fuzz FUZZTIME":          "1s;touch x",
		"bench BENCHFLAGS":       "-quick;touch x",
		"demo KEEP":              "1 touch x;",
		"image IMAGE":            "a;touch x",
		"image TARGET":           "a;touch x",
		"image-push ENGINE":      "docker;touch x",
		"release-check PLATFORM": "not a variable; touch x",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			target, variable, _ := strings.Cut(call, " ")
			output, err := tree.Make(t, root, "--dry-run", target, variable+"="+strings.ReplaceAll(value, "$", "$$"))
			if err != nil || strings.Contains(output, "touch x") {
				t.Errorf("got the value in a recipe (%v):\n%s", err, output)
			}
		})
	}
}

func TestAVersionIsNotACommand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x")
	version := "v1;touch " + file
	output, err := tree.Make(t, root, "release-notes", "VERSION="+version)
	if err == nil || !strings.Contains(output, `got version "`+version+`", want one like v1.2.3`) {
		t.Errorf("got error %v, want one about the version:\n%s", err, output)
	}
	// As the workflow passes it. Make must not expand it either.
	command := exec.CommandContext(t.Context(), "make", "release-notes")
	command.Dir = root
	command.Env = append(command.Environ(), "VERSION=v1$(shell touch "+file+")")
	if text, err := command.CombinedOutput(); err == nil {
		t.Errorf("got no error, want one about the version:\n%s", text)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the version was run as a command")
	}
}
