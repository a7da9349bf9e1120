// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// kubectl calls the script with the words after "kubectl lanyard", of which the last may be
// empty.
func TestCompletionOfThePlugin(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh")
	}
	dir := t.TempDir()
	if err := process.WriteScript(filepath.Join(dir, "kubectl"), "#!/bin/sh\nprintf '[%s]' \"$@\"\n"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := exec.CommandContext(t.Context(), "./kubectl_complete-lanyard", "explain", "pod/a b", "").CombinedOutput()
	if got, want := string(out), "[lanyard][__complete][explain][pod/a b][]"; err != nil || got != want {
		t.Errorf("got %q and %v, want %q", got, err, want)
	}
}
