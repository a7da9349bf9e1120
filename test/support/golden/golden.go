// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package golden reads and writes files of expected texts. A file contains the texts of
// one theme, each below a heading, as in the txtar files of the Go project:
//
//	-- a pod that was denied --
//	the text
package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A heading is a line that begins and ends with these.
const (
	prefix = "-- "
	suffix = " --\n"
)

// Text is one text of a file.
type Text struct{ Heading, Body string }

// Read returns the texts of a file, in their order.
func Read(path string) ([]Text, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []Text
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, prefix) && strings.HasSuffix(line, suffix) && len(line) > len(prefix+suffix) {
			found = append(found, Text{Heading: line[len(prefix) : len(line)-len(suffix)]})
			continue
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: got the line %q before the first heading", path, line)
		}
		found[len(found)-1].Body += line
	}
	return found, nil
}

// writing is held while a file is changed: parallel tests may share a file.
var writing sync.Mutex

// Want returns the text below a heading of a file, which a test expects. If update is set, it
// writes got there and returns got. It adds a new heading at the end of the file.
func Want(path, heading, got string, update bool) (string, error) {
	if update {
		return got, write(path, heading, got)
	}
	found, err := Read(path)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(found, func(t Text) bool { return t.Heading == heading })
	if i < 0 {
		return "", fmt.Errorf("%s: got no heading %q; the flag -update adds it", path, heading)
	}
	return found[i].Body, nil
}

// Compare fails a test if got is not the text that Want returns.
func Compare(t testing.TB, path, heading, got string, update bool) {
	t.Helper()
	want, err := Want(path, heading, got, update)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s (-want +got):\n%s", path, heading, diff)
	}
}

func write(path, heading, body string) error {
	writing.Lock()
	defer writing.Unlock()
	found, err := Read(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	i := slices.IndexFunc(found, func(t Text) bool { return t.Heading == heading })
	if i < 0 {
		i, found = len(found), append(found, Text{Heading: heading})
	}
	found[i].Body = body
	var content strings.Builder
	for _, t := range found {
		content.WriteString(prefix + t.Heading + suffix + t.Body)
		if t.Body != "" && !strings.HasSuffix(t.Body, "\n") {
			return fmt.Errorf("%s: %s: the text does not end with a line break", path, t.Heading)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content.String()), 0o644)
}
