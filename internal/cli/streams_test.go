// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Commands write through command.Page, command.Output and CLI.Note, which escape text of
// the cluster. The other writes are in this table, with the reason.
func TestCommandsDoNotWriteToTheStreams(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{
		"command/output.go":          "JSON and YAML, escaped",
		"inject/inject_command.go":   "manifests, escaped by Write",
		"migrate/migrate_command.go": "a diff of the user's files, as they are",
		"status/restart.go":          "a question without text of the cluster",
		"status/status_command.go":   "an empty line",
	}
	writes := regexp.MustCompile(`(?:Write|Fprint\w*)\(\w*\.?(?:Out|ErrOut)\b|\.(?:Out|ErrOut)\.Write|os\.Std(?:out|err)\b|fmt\.Print`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found := writes.FindAll(source, -1)
		if len(found) > 1 || len(found) == 1 && allowed[path] == "" {
			t.Errorf("%s: got the writes %q, want them through command.Page", path, found)
		}
		if len(found) == 0 && allowed[path] != "" {
			t.Errorf("%s: got no write, want the file removed from the table", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
