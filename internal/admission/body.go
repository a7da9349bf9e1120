// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// MaxBodyBytes is the longest AdmissionReview that is read. The API server
// accepts objects of up to 3 MiB, and the review of an update has two of them.
const MaxBodyBytes = 7 << 20

const (
	// usualBodyBytes is more than nearly all requests have.
	usualBodyBytes = 64 << 10
	// maxLargeBytes limits the memory of all bodies over usualBodyBytes together. A
	// large request waits until there is memory, or until its time is over. Meanwhile
	// only its first usualBodyBytes are read. Usual requests never wait.
	maxLargeBytes = 16 << 20
)

// Limits of the time that one request may take.
const (
	// defaultTimeout is the API server's own for a webhook without timeoutSeconds.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the longest timeoutSeconds.
	maxTimeout = 30 * time.Second
)

// statusError is the error of a request that is not an AdmissionReview. It is
// answered with an HTTP status.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// badRequest returns the error for a malformed request.
func badRequest(err error) error { return &statusError{http.StatusBadRequest, err} }

// errOverloaded is the error of a large request for which there was no memory in
// time. The beginning of its body was read.
var errOverloaded = errors.New("too many other large requests; try again")

// checkRequest checks everything but the body.
func checkRequest(r *http.Request) error {
	if r.Method != http.MethodPost {
		return &statusError{http.StatusMethodNotAllowed, fmt.Errorf("got method %s, want POST", r.Method)}
	}
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != "application/json" {
		return &statusError{http.StatusUnsupportedMediaType, fmt.Errorf("got Content-Type %q, want application/json", contentType)}
	}
	return nil
}

// requestTimeout returns how long the API server waits: its query parameter
// timeout.
func requestTimeout(r *http.Request) (time.Duration, error) {
	value := r.URL.Query().Get("timeout")
	if value == "" {
		return defaultTimeout, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return 0, badRequest(fmt.Errorf("query parameter timeout: got %q, want a positive duration such as 10s", value))
	}
	return min(timeout, maxTimeout), nil
}

// readBody reads the body into buffer. Its error is errOverloaded or a
// *statusError. The response must be sent by the deadline; then release must be
// called.
func (h *Handler[T]) readBody(ctx context.Context, buffer *bytes.Buffer, w http.ResponseWriter, r *http.Request, deadline time.Time) (release func(), err error) {
	if 0 <= r.ContentLength && r.ContentLength <= usualBodyBytes {
		return func() {}, readInto(buffer, r.Body, int(r.ContentLength))
	}
	// A large body that arrives slowly, or a client that does not read its response,
	// must not use memory for longer than the API server waits.
	connection := http.NewResponseController(w)
	_ = errors.Join(connection.SetReadDeadline(deadline), connection.SetWriteDeadline(deadline))
	free, err := h.readLarge(ctx, buffer, http.MaxBytesReader(w, r.Body, MaxBodyBytes), r.ContentLength)
	return func() {
		free()
		// The server itself resets only the read deadline.
		_ = connection.SetWriteDeadline(time.Time{})
	}, err
}

// readLarge reads the beginning of a body, and the rest when there is memory for
// it. Then free must be called.
func (h *Handler[T]) readLarge(ctx context.Context, buffer *bytes.Buffer, body io.Reader, length int64) (free func(), err error) {
	free = func() {}
	err = readInto(buffer, io.LimitReader(body, usualBodyBytes), usualBodyBytes)
	if err != nil || buffer.Len() < usualBodyBytes {
		return free, err
	}
	if length < 0 || length > MaxBodyBytes {
		length = MaxBodyBytes
	}
	if h.large.Acquire(ctx, length) != nil {
		// A client that is still sending may miss an early response.
		_, _ = io.Copy(io.Discard, body)
		return free, errOverloaded
	}
	return func() { h.large.Release(length) }, readInto(buffer, body, int(length)-buffer.Len())
}

// readInto reads all of body, which is expected to have this many bytes.
func readInto(buffer *bytes.Buffer, body io.Reader, expected int) error {
	// ReadFrom needs free space at the end to detect that the body has ended.
	buffer.Grow(expected + bytes.MinRead)
	_, err := buffer.ReadFrom(body)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return &statusError{http.StatusRequestEntityTooLarge, fmt.Errorf("got a body of more than %d bytes", tooLarge.Limit)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badRequest(errors.New("got a body that is shorter than its Content-Length"))
	}
	return badRequest(fmt.Errorf("read body: %w", err))
}
