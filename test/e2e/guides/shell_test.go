// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// call is a call of a command line, such as aws or kubectl.
type call []string

// is reports whether the call starts with these words.
func (c call) is(words string) bool {
	return strings.HasPrefix(strings.Join(c, " ")+" ", words+" ")
}

// flag returns the value of a flag, or "" if it is not set.
func (c call) flag(name string) string {
	for i, argument := range c {
		if value, ok := strings.CutPrefix(argument, "--"+name+"="); ok {
			return value
		}
		if argument == "--"+name && i+1 < len(c) {
			return c[i+1]
		}
	}
	return ""
}

// settings returns the arguments of the form NAME=VALUE.
func (c call) settings() map[string]string {
	settings := map[string]string{}
	for _, argument := range c {
		if name, value, ok := strings.Cut(argument, "="); ok && !strings.HasPrefix(argument, "-") {
			settings[name] = value
		}
	}
	return settings
}

// run is the result of a page's commands.
type run struct {
	directory string
	calls     []call
}

// all returns the calls that start with these words.
func (r run) all(words string) []call {
	return slices.DeleteFunc(slices.Clone(r.calls), func(c call) bool { return !c.is(words) })
}

// one returns the only call that starts with these words.
func (r run) one(t testing.TB, words string) call {
	t.Helper()
	calls := r.all(words)
	if len(calls) != 1 {
		t.Fatalf("got %d calls of %q, want 1 in the page", len(calls), words)
	}
	return calls[0]
}

// file returns the contents of a file that the commands wrote.
func (r run) file(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.directory, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// runPage runs all shell blocks of a page in one shell, with stand-ins for the
// command lines. A stand-in records its arguments. It prints the answer for the
// words that they start with, if any.
func runPage(t testing.TB, page string, answers map[string]string) run {
	t.Helper()
	r := run{directory: t.TempDir()}
	stubs, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	stub := standIn(answers)
	for _, name := range []string{"aws", "az", "gcloud", "helm", "kubectl", "lanyard", "vault"} {
		if err := process.WriteScript(filepath.Join(stubs, name), stub); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", joined(readPage(t, page), "sh"))
	command.Dir = r.directory
	// Pass only what the pages may use, and no cloud configuration of the machine.
	command.Env = []string{"PATH=" + stubs + ":/usr/bin:/bin", "CALLS=" + calls, "HOME=" + r.directory, "VAULT_ADDR=https://vault.example.com"}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("run the shell blocks of %s: %v: %s", page, err, output)
	}
	record, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(record), "\x1e"), "\x1e") {
		r.calls = append(r.calls, strings.Split(strings.TrimSuffix(line, "\x1f"), "\x1f"))
	}
	return r
}

// standIn returns the text of a program that stands in for a command line.
func standIn(answers map[string]string) string {
	var text strings.Builder
	text.WriteString("#!/bin/bash\n")
	text.WriteString(`printf -v call '%s\037' "${0##*/}" "$@"` + "\n")
	text.WriteString(`printf '%s\036' "$call" >> "$CALLS"` + "\n")
	text.WriteString(`case "${0##*/} $*" in` + "\n")
	for _, words := range slices.Backward(slices.Sorted(maps.Keys(answers))) { // the longest of those that match
		fmt.Fprintf(&text, "%s*) printf '%%s\\n' %s ;;\n", quote(words), quote(answers[words]))
	}
	text.WriteString("esac\n")
	return text.String()
}

func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
