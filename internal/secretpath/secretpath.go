// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secretpath keeps the paths of the webhooks secret. Each path ends with
// the same 32 random digits, which only the readers of the webhook configurations
// know: a pod that can connect to the server still cannot send it a review.
package secretpath

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// Wildcard is the name of the last segment in the patterns of a http.ServeMux.
	Wildcard = "segment"
	// settleDelay is how long other paths are still served after all webhooks have
	// the secret one: each API server learns of it by a watch of its own.
	settleDelay = 5 * time.Second
	// patience is how long a request for another path waits for a change: an API
	// server may learn of it a moment before this process does.
	patience = 2 * time.Second
)

var (
	valid  = regexp.MustCompile(`^[0-9a-f]{32}$`)
	suffix = regexp.MustCompile(`/[0-9a-f]{32}$`)
	inText = regexp.MustCompile(`/[0-9a-f]{32}\b`)
)

// NewSegment returns a new random segment.
func NewSegment() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	return hex.EncodeToString(random)
}

// Valid reports whether the text is a segment as NewSegment returns it.
func Valid(segment string) bool { return valid.MatchString(segment) }

// With returns the path or URL with the segment as its last one. It replaces an
// earlier secret segment.
func With(path, segment string) string { return suffix.ReplaceAllString(path, "") + "/" + segment }

// Redact removes secret segments from a text, such as an error of the API server.
func Redact(text string) string { return inText.ReplaceAllString(text, "/<secret>") }

// RedactError returns the error, or one with a redacted message if there is a
// secret in it.
func RedactError(err error) error {
	if text := err.Error(); inText.MatchString(text) {
		return errors.New(Redact(text))
	}
	return err
}

// Gate decides which requests are served. The zero value serves all. It is safe
// for concurrent use.
type Gate struct {
	mu      sync.Mutex
	segment string        // the secret one
	version string        // of the registration; empty before it is known
	only    time.Time     // from then on only the secret path is served; zero for never
	changed chan struct{} // closed at the next change; nil if nobody waits
}

// Registration is what the webhook configurations say.
type Registration struct {
	// Paths are the paths or URLs of all webhooks.
	Paths []string
	// Version is another one after each change. It is not empty.
	Version string
	// Written is when somebody last wrote a configuration.
	Written time.Time
}

func (r *Registration) has(segment string) bool {
	return segment != "" && !slices.ContainsFunc(r.Paths, func(path string) bool { return !strings.HasSuffix(path, "/"+segment) })
}

// Observe tells the gate the secret segment and the registration.
//
// Only the secret path is served if all webhooks have it, and have not changed for
// settleDelay. Otherwise all paths are served: an API server may still use any of
// them. What the registration was between two observations does not matter. After
// a restart, the time of the last write decides.
func (g *Gate) Observe(segment string, r *Registration, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	since := now
	if g.version == "" && r.Written.Before(now) {
		since = r.Written
	}
	only := g.only
	switch {
	case !r.has(segment):
		only = time.Time{}
	case only.IsZero() || segment != g.segment || r.Version != g.version:
		only = since.Add(settleDelay)
	}
	g.version = r.Version
	if segment == g.segment && only.Equal(g.only) {
		return
	}
	g.segment, g.only = segment, only
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// look reports whether a request is served now, and returns what is closed when
// that may change.
func (g *Gate) look(segment string) (served bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.only.IsZero() || time.Now().Before(g.only) || subtle.ConstantTimeCompare([]byte(segment), []byte(g.segment)) == 1 {
		return true, nil
	}
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return false, g.changed
}

// serves reports whether a request is served, at once or after a change.
func (g *Gate) serves(segment string) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		served, changed := g.look(segment)
		if served {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}

// Handler passes the requests that are served to next. The others get a 404 before
// their body is read. The pattern of the handler must name the last segment
// Wildcard, or have none.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.serves(r.PathValue(Wildcard)) {
			w.Header().Set("Connection", "close") // or the server would read the body
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
