// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestWant(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "theme.txt")
	want := func(heading, got string, update bool) string {
		text, err := Want(path, heading, got, update)
		if err != nil {
			return "error: " + err.Error()
		}
		return text
	}
	for _, test := range []struct {
		sentence, heading, got string
		update                 bool
		want                   string
	}{
		{"an update writes a new file", "one", "1\n-- \n --\n--x --\n", true, "1\n-- \n --\n--x --\n"},
		{"an update adds a heading", "two", "", true, ""},
		{"an update keeps the other texts", "one", "other", false, "1\n-- \n --\n--x --\n"},
		{"an update replaces a text", "one", "2\n", true, "2\n"},
		{"a test without an update writes nothing", "two", "other\n", false, ""},
		{"a heading that is missing is an error", "three", "", false, "error: " + path + `: got no heading "three"; the flag -update adds it`},
		{"a text without a last line break is an error", "one", "2", true, "error: " + path + ": one: the text does not end with a line break"},
	} {
		if got := want(test.heading, test.got, test.update); got != test.want {
			t.Errorf("%s: got %q, want %q", test.sentence, got, test.want)
		}
	}
	text, err := os.ReadFile(path)
	if got, want := string(text), "-- one --\n2\n-- two --\n"; err != nil || got != want {
		t.Errorf("got the file %q and %v, want %q", got, err, want)
	}
	if err := os.WriteFile(path, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := want("one", "", false); !strings.Contains(got, `got the line "text\n" before the first heading`) {
		t.Errorf("a file without a heading: got %q, want an error", got)
	}
}

func TestParallelTestsUpdateOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "theme.txt")
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			if _, err := Want(path, fmt.Sprint(i), "text\n", true); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if found, err := Read(path); err != nil || len(found) != 20 {
		t.Errorf("got %d texts and %v, want 20", len(found), err)
	}
}
