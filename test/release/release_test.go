// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release tests hack/release.sh, "make vuln" and "make sbom" with the programs that
// they call, and the ways to install lanyard. It needs Git, and builds programs into bin, so
// "make release-check" runs it and "make test" does not.
package release

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// root is the root of the repository.
const root = "../.."

// execute returns the exit code and the output of a program.
func execute(t *testing.T, name string, arguments ...string) (code int, output string) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), name, arguments...).CombinedOutput()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return exit.ExitCode(), string(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(text)
}

// git runs git in the root of the repository, and returns its output.
func git(t *testing.T, arguments ...string) string {
	t.Helper()
	code, output := execute(t, "git", append([]string{"-C", root}, arguments...)...)
	if code != 0 {
		t.Fatalf("git %q: exit code %d\n%s", arguments, code, output)
	}
	return strings.TrimSpace(output)
}
