// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// kubectl calls the script with the words after "kubectl lanyard", of which the last may be
// empty.
func TestCompletionOfThePlugin(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\nprintf '[%s]' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := exec.CommandContext(t.Context(), "./kubectl_complete-lanyard", "explain", "pod/a b", "").CombinedOutput()
	if got, want := string(out), "[lanyard][__complete][explain][pod/a b][]"; err != nil || got != want {
		t.Errorf("got %q and %v, want %q", got, err, want)
	}
}
