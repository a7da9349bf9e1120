// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

func TestReplaceFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "below", "two")
	for _, text := range []string{"old", "new"} {
		if err := command.ReplaceFiles([]command.File{{Path: one, Text: text}, {Path: two, Text: text}}, 0o600, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// The directory of the second file is a file.
	if err := command.ReplaceFiles([]command.File{{Path: one, Text: "newest"}, {Path: filepath.Join(one, "x"), Text: ""}}, 0o600, 0o700); err == nil {
		t.Error("got no error, want one for a directory that is a file")
	}
	for _, path := range []string{one, two} {
		if text, err := os.ReadFile(path); err != nil || string(text) != "new" {
			t.Errorf("%s: got %q and error %v, want new", path, text, err)
		}
	}
}
