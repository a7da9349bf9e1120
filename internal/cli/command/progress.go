// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/component-base/term"
)

// patience is how long a command may print nothing before it says what it waits for, and briefly
// is how long a request may take at least.
const patience, briefly = 2 * time.Second, 200 * time.Millisecond

// progress knows since when a command has printed nothing. It may be used concurrently.
type progress struct {
	mu sync.Mutex
	// quiet is the time of the last output, or of the first request.
	quiet time.Time
	// told are the requests that the user was told about.
	told map[string]bool
}

// rest returns how long the command may go on without output.
func (p *progress) rest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet.IsZero() {
		p.quiet = time.Now()
	}
	return patience - time.Since(p.quiet)
}

// tell reports whether the user was not told about a request yet.
func (p *progress) tell(request string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.told[request]
	p.told[request] = true
	return !known
}

// again forgets the last output, because the command has paused.
func (p *progress) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet = time.Time{}
}

// stream is an output stream of a command.
type stream struct {
	io.Writer
	*progress
}

// Write implements io.Writer.
func (s stream) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = time.Now()
	return s.Writer.Write(text)
}

// terminalWidth returns the width of a terminal, and whether the stream is one.
func terminalWidth(w io.Writer) (width int, isTerminal bool) {
	if s, isStream := w.(stream); isStream {
		w = s.Writer
	}
	width, _, err := term.TerminalSize(w)
	return width, err == nil
}

// patient is a transport that tells the user which request the command waits for, if it has printed
// nothing for longer than patience.
type patient struct {
	http.RoundTripper
	c *CLI
	// server is the name of the server, or empty for its host.
	server string
}

// message returns what the command waits for.
func (p patient) message(request *http.Request) string {
	server := p.server
	switch {
	case p.c.Private:
		return "waiting for a response ..."
	case server == "":
		server = request.URL.Host
	case request.Method != http.MethodGet:
		server += " and the webhooks that it calls"
	}
	return fmt.Sprintf("waiting for %s: %s %s ...", server, request.Method, request.URL.Path)
}

// RoundTrip implements http.RoundTripper.
func (p patient) RoundTrip(request *http.Request) (*http.Response, error) {
	told := make(chan struct{})
	timer := time.AfterFunc(max(p.c.progress.rest(), briefly), func() {
		defer close(told)
		if message := p.message(request); p.c.progress.tell(message) {
			p.c.Note("%s", message)
		}
	})
	response, err := p.RoundTripper.RoundTrip(request)
	if !timer.Stop() {
		<-told
	}
	return response, err
}

// Progress returns a client that tells the user which request the command waits for. Clients for
// the API server already do.
func (c *CLI) Progress(client *http.Client) *http.Client {
	client.Transport = patient{client.Transport, c, ""}
	return client
}

// Periodically returns a function that reports progress on a terminal, at most every few
// seconds.
func (c *CLI) Periodically() (report func(format string, values ...any)) {
	next := time.Now().Add(patience)
	return func(format string, values ...any) {
		_, isTerminal := terminalWidth(c.ErrOut)
		if now := time.Now(); isTerminal && now.After(next) {
			next = now.Add(patience)
			c.Note(format, values...)
		}
	}
}
