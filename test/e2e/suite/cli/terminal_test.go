// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/creack/pty"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// terminal is a terminal in which the commands run.
type terminal struct {
	columns int
	// colour is false for a user who set NO_COLOR.
	colour bool
}

// terminals contains all terminals. The recordings are made in the first one.
var terminals = []terminal{{80, false}, {80, true}, {120, false}, {120, true}}

// patience limits a command, and a script of an incident, which waits for rollouts.
const patience = 2 * framework.Patience

// run runs a shell command and returns its exit code and terminal output.
func (t terminal) run(ctx context.Context, command string) (code int, shown string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", command)
	shell.Dir = user.directory
	shell.Env = append(os.Environ(), user.environment...)
	shell.Env = append(shell.Env, "TERM=xterm-256color")
	if !t.colour {
		shell.Env = append(shell.Env, "NO_COLOR=1")
	}
	screen, err := pty.StartWithSize(shell, &pty.Winsize{Rows: 50, Cols: uint16(t.columns)})
	Expect(err).NotTo(HaveOccurred())
	defer screen.Close()
	var text bytes.Buffer
	buffer := make([]byte, 4096)
	for {
		n, err := screen.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			break // Linux returns EIO when the command has ended
		}
	}
	err = shell.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), lines(text.String())
	}
	Expect(err).NotTo(HaveOccurred(), "%s: %s", command, text.String())
	return 0, lines(text.String())
}

// progress matches the messages about requests and steps that take long.
var progress = regexp.MustCompile(`(?m)^(waiting for [^\n]+|\d+ of \d+ namespaces|\d+ ServiceAccounts so far|exchanged the tokens of \d+ of \d+ ServiceAccounts) \.\.\.\n`)

// lines returns the terminal output, without parts that depend on timing.
func lines(shown string) string {
	return progress.ReplaceAllString(strings.ReplaceAll(shown, "\r\n", "\n"), "")
}

// escapes matches the sequences that make a text coloured or bold.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// plain removes colours from the output. No other sequence is expected.
func plain(shown string) string {
	GinkgoHelper()
	shown = escapes.ReplaceAllString(shown, "")
	Expect(shown).NotTo(ContainSubstring("\x1b"), "want no sequences but those of colours")
	return shown
}

// nextStep matches the line of a next step.
var nextStep = regexp.MustCompile("^(    |  -> )")

// tooWide returns the lines that a terminal would break. lanyard does not break a long word, such
// as a link, or a next step, because users could no longer copy it.
func tooWide(shown string, columns int) []string {
	var found []string
	for line := range strings.Lines(shown) {
		line = strings.TrimRight(line, "\n")
		if len([]rune(line)) > columns && len(strings.Fields(line)) > 1 && !nextStep.MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}
