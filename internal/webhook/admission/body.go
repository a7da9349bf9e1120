// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// MaxBodyBytes limits an AdmissionReview. The API server accepts objects of up to 3 MiB, and
// the review of an update contains two.
const MaxBodyBytes = 7 << 20

// Time limits of one request.
const (
	// defaultTimeout is the API server's default of timeoutSeconds.
	defaultTimeout = 10 * time.Second
	// minTimeout and maxTimeout are the bounds of timeoutSeconds. A caller with a shorter
	// timeout could cause more work than it has connections.
	minTimeout, maxTimeout = time.Second, 30 * time.Second
	// bodyTimeout limits reading a body, and writeTimeout writing a response. API servers
	// send and read without delay.
	bodyTimeout, writeTimeout = 2 * time.Second, 2 * time.Second
)

// statusError is returned for a request that is not an AdmissionReview. code is the HTTP status of
// the response.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// badRequest returns the error for a malformed request.
func badRequest(err error) error { return &statusError{http.StatusBadRequest, err} }

// errOverloaded is returned if a request does not get memory in time.
var errOverloaded = &reason.Fault{Reason: reason.Overloaded, Err: errors.New("too many other requests; try again")}

// checkRequest checks the request without its body.
func checkRequest(r *http.Request) error {
	if r.Method != http.MethodPost {
		return &statusError{http.StatusMethodNotAllowed, fmt.Errorf("got method %s, want POST", texts.Cut(r.Method, texts.MaxShown))}
	}
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != "application/json" {
		return &statusError{http.StatusUnsupportedMediaType, fmt.Errorf("got Content-Type %q, want application/json", texts.Cut(contentType, texts.MaxShown))}
	}
	if r.ContentLength < 0 {
		return &statusError{http.StatusLengthRequired, errors.New("got no Content-Length, want one")}
	}
	if r.ContentLength > MaxBodyBytes {
		return &statusError{http.StatusRequestEntityTooLarge, fmt.Errorf("got a body of more than %d bytes", MaxBodyBytes)}
	}
	return nil
}

// requestTimeout returns how long the API server waits, from the query parameter timeout.
func requestTimeout(r *http.Request) (time.Duration, error) {
	value := r.URL.Query().Get("timeout")
	if value == "" {
		return defaultTimeout, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return 0, badRequest(fmt.Errorf("query parameter timeout: got %q, want a positive duration such as 10s", texts.Cut(value, texts.MaxShown)))
	}
	return min(max(timeout, minTimeout), maxTimeout), nil
}

// readBody reads the body. Its error is a *statusError or errOverloaded.
func (h *Handler[T]) readBody(ctx context.Context, m *memory[T], s *share, w http.ResponseWriter, r *http.Request) error {
	connection := http.NewResponseController(w)
	until, _ := ctx.Deadline()
	readBy := time.Now().Add(bodyTimeout)
	if until.Before(readBy) {
		readBy = until
	}
	_ = connection.SetReadDeadline(readBy)
	s.body = s.budget.bodies.Claim(s.client)
	grow := func(buffer []byte, capacity int) ([]byte, error) {
		if capacity > usualBodyBytes {
			first := cap(buffer) <= usualBodyBytes
			if err := takeUntil(ctx, &s.body, int64(capacity), readBy); err != nil {
				return buffer, err
			}
			if first {
				s.body.StartIdle(func() { _ = connection.SetReadDeadline(time.Unix(0, 1)) })
			}
		}
		grown := append(make([]byte, 0, capacity), buffer...)
		s.body.Keep(int64(capacity)) // without the shorter buffer
		return grown, nil
	}
	var err error
	m.body, err = readAll(m.body[:0], r.Body, int(r.ContentLength), grow)
	if s.body.EndIdle() {
		return errOverloaded
	}
	if err == nil {
		// The server reads on, to notice a client that disconnects.
		_ = connection.SetReadDeadline(until)
	}
	return err
}

// takeUntil is claim.Take with a deadline.
func takeUntil(ctx context.Context, claim *bounds.Claim, bytes int64, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return claim.Take(ctx, bytes)
}

// readAll appends a body of this length to buffer. The buffer grows as the body arrives: a
// client must send half of the body before the buffer is as large as the whole.
func readAll(buffer []byte, body io.Reader, length int, grow func(buffer []byte, capacity int) ([]byte, error)) ([]byte, error) {
	for len(buffer) < length {
		var err error
		if len(buffer) == cap(buffer) {
			if buffer, err = grow(buffer, min(max(2*len(buffer), usualBodyBytes), length)); err != nil {
				return buffer, err
			}
		}
		n, err := body.Read(buffer[len(buffer):min(cap(buffer), length)])
		buffer = buffer[:len(buffer)+n]
		switch {
		case len(buffer) == length, err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return buffer, badRequest(errors.New("got a body that is shorter than its Content-Length"))
		default:
			return buffer, badRequest(fmt.Errorf("read body: %w", err))
		}
	}
	return buffer, nil
}
