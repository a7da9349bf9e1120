// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// runScript runs a script with stand-ins for the programs of the clouds, and returns
// the arguments of each call, and the directory that it ran in.
func runScript(t *testing.T, script string) (calls [][]string, directory string) {
	t.Helper()
	directory = t.TempDir()
	programs := t.TempDir()
	const standIn = "#!/bin/sh\n{ printf '%s\\0' \"${0##*/}\" \"$@\"; printf '\\0'; } >> \"$CALLS\"\necho my-project\n"
	for _, name := range []string{"aws", "az", "gcloud", "kubectl"} {
		if err := process.WriteScript(filepath.Join(programs, name), standIn); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(programs, "calls")
	cmd := exec.CommandContext(t.Context(), "sh", "-eu")
	cmd.Dir = directory
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "CALLS=" + log, "GROUP=from-the-environment", "TMPDIR=" + programs}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, script)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for call := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte("\x00\x00")), []byte("\x00\x00")) {
		calls = append(calls, strings.Split(string(call), "\x00"))
	}
	return calls, directory
}
