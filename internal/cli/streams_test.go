// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
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
		"inject/inject.go":           "manifests, escaped by Write",
		"policies/policies.go":       "policies, which have no text of the cluster",
		"workload/status_command.go": "an empty line",
	}
	writes := regexp.MustCompile(`(?:Write|Fprint\w*)\(\w*\.?(?:Out|ErrOut)\b|\.(?:Out|ErrOut)\.Write|os\.Std(?:out|err)\b|fmt\.Print`)
	paths, err := filepath.Glob("*/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("got %v and %v", paths, err)
	}
	for _, path := range append(paths, "root.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := writes.FindAll(source, -1)
		if len(found) > 1 || len(found) == 1 && allowed[path] == "" {
			t.Errorf("%s: got the writes %q, want them through command.Page", path, found)
		}
		if len(found) == 0 && allowed[path] != "" {
			t.Errorf("%s: got no write, want the file removed from the table", path)
		}
	}
}
