// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/golden"
	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// The recorded commands: the pages of the suite cli on a cluster, and the texts of the suite cli
// on an API server.
const (
	recordedPages = "test/e2e/suite/cli/testdata/pages/"
	recordedTexts = "test/integration/cli/testdata/"
)

// leftOut is the line of an excerpt that stands for lines of the recording.
const leftOut = "..."

// recorded returns the outputs of each command in the recordings, without their last line
// break.
func recorded(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	add := func(recording string) {
		if recording, isCommand := strings.CutPrefix(recording, "$ "); isCommand {
			command, output, _ := strings.Cut(recording, "\n")
			found[command] = append(found[command], output)
		}
	}
	for _, name := range tree.Files(t, root) {
		switch {
		case strings.HasPrefix(name, recordedPages):
			for _, part := range strings.Split(tree.Read(t, root, name), "```text\n")[1:] {
				part, _, _ = strings.Cut(part, "\n```\n")
				add(part)
			}
		case strings.HasPrefix(name, recordedTexts) && strings.HasSuffix(name, ".txt"):
			texts, err := golden.Read(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range texts {
				add(strings.TrimSuffix(text.Body, "\n"))
			}
		}
	}
	return found
}

// isExcerpt reports whether the lines of the excerpt are lines of the output, in this order.
// Lines may be left out where the excerpt has a line "...".
func isExcerpt(excerpt, output string) bool {
	return areExcerpt(strings.Split(strings.TrimSuffix(excerpt, "\n"), "\n"), strings.Split(output, "\n"), false)
}

func areExcerpt(lines, output []string, mayLeaveOut bool) bool {
	switch {
	case len(lines) == 0:
		return len(output) == 0 || mayLeaveOut
	case lines[0] == leftOut:
		return areExcerpt(lines[1:], output, true)
	}
	for i, line := range output {
		if line == lines[0] && areExcerpt(lines[1:], output[i+1:], false) {
			return true
		}
		if !mayLeaveOut {
			break
		}
	}
	return false
}

func TestThePagesOfTheCommandsShowRecordings(t *testing.T) {
	outputs := recorded(t)
	checked := 0
	for name, p := range pages(t) {
		if !strings.HasPrefix(name, "docs/cli/") {
			continue
		}
		for _, b := range blocksOf(p) {
			text, isCommand := strings.CutPrefix(b.text, "$ ")
			if !isCommand {
				continue
			}
			checked++
			command, excerpt, _ := strings.Cut(text, "\n")
			if !slices.ContainsFunc(outputs[command], func(output string) bool { return isExcerpt(excerpt, output) }) {
				t.Errorf("%s: the output of %s is not an excerpt of its recordings in %s or %s:\n%s", name, command, recordedPages, recordedTexts, excerpt)
			}
		}
	}
	if checked < 15 { // the pages show 19
		t.Errorf("got %d commands with output, want all commands of docs/cli", checked)
	}
}

func TestIsExcerpt(t *testing.T) {
	const output = "a\nb\nc\nd"
	for excerpt, want := range map[string]bool{
		"a\nb\nc\nd\n":        true,
		"...\nb\n...\n":       true,
		"a\n...\nd\n":         true,
		"...\nc\nd\n":         true,
		"a\nb\n":              false, // the end is missing
		"a\nc\n...\n":         false, // b is missing
		"b\n...\n":            false, // the beginning is missing
		"...\nc\n...\na\n...": false, // another order
		"...\nx\n...\n":       false, // another line
		"...\nd\n...\nd\n":    false, // a line twice
	} {
		if got := isExcerpt(excerpt, output); got != want {
			t.Errorf("%q: got %t, want %t", excerpt, got, want)
		}
	}
}
