// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journaltest provides a journal that tests can read.
package journaltest

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// Recorder is a journal that keeps its entries.
type Recorder struct {
	*journal.Journal

	lines  buffer
	errors buffer
}

// New returns an empty journal.
func New() *Recorder {
	r := &Recorder{}
	r.Journal = journal.New(&r.lines, slog.New(slog.NewTextHandler(&r.errors, nil)))
	return r
}

// Text returns the written lines unchanged.
func (r *Recorder) Text() string { return r.lines.String() }

// Errors returns the logged errors of the emulator itself.
func (r *Recorder) Errors() string { return r.errors.String() }

// Entries returns the written entries.
func (r *Recorder) Entries(t testing.TB) []journal.Entry {
	t.Helper()
	var entries []journal.Entry
	for line := range bytes.Lines([]byte(r.Text())) {
		var entry journal.Entry
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		entries = append(entries, entry)
	}
	return entries
}

// Last returns the last entry.
func (r *Recorder) Last(t testing.TB) journal.Entry {
	t.Helper()
	entries := r.Entries(t)
	if len(entries) == 0 {
		t.Fatal("got no entries, want at least one")
	}
	return entries[len(entries)-1]
}

// buffer can be read while it is being written.
type buffer struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.String()
}
