// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journaltest has a journal that tests can read.
package journaltest

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// Recorder is a journal and what was written to it.
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

// Text is everything that was written, as it was.
func (r *Recorder) Text() string {
	return r.lines.String()
}

// Errors is what went wrong in the emulator itself.
func (r *Recorder) Errors() string {
	return r.errors.String()
}

// Entries are what was written.
func (r *Recorder) Entries(t testing.TB) []journal.Entry {
	t.Helper()
	var entries []journal.Entry
	for line := range bytes.Lines([]byte(r.lines.String())) {
		var entry journal.Entry
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		entries = append(entries, entry)
	}
	return entries
}

// Last is the latest entry.
func (r *Recorder) Last(t testing.TB) journal.Entry {
	t.Helper()
	entries := r.Entries(t)
	if len(entries) == 0 {
		t.Fatal("got no entry, want one")
	}
	return entries[len(entries)-1]
}

// buffer is one that may be read while it is written.
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
