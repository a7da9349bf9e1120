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

	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// MaxBodyBytes is the longest AdmissionReview that is read. The API server
// accepts objects of up to 3 MiB, and the review of an update has two of them.
const MaxBodyBytes = 7 << 20

// Limits of the time that one request may take.
const (
	// defaultTimeout is the API server's own for a webhook without timeoutSeconds.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the longest timeoutSeconds.
	maxTimeout = 30 * time.Second
	// bodyTimeout limits reading a body. An API server sends it at once.
	bodyTimeout = 2 * time.Second
)

// maxShownBytes limits the part of a request that a message repeats.
const maxShownBytes = 64

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

// errOverloaded is the error of a request for which there was no memory in time.
var errOverloaded = errors.New("too many other requests; try again")

// checkRequest checks everything but the body.
func checkRequest(r *http.Request) error {
	if r.Method != http.MethodPost {
		return &statusError{http.StatusMethodNotAllowed, fmt.Errorf("got method %s, want POST", texts.Cut(r.Method, maxShownBytes))}
	}
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != "application/json" {
		return &statusError{http.StatusUnsupportedMediaType, fmt.Errorf("got Content-Type %q, want application/json", texts.Cut(contentType, maxShownBytes))}
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
		return 0, badRequest(fmt.Errorf("query parameter timeout: got %q, want a positive duration such as 10s", texts.Cut(value, maxShownBytes)))
	}
	return min(timeout, maxTimeout), nil
}

// readBody reads the body. Its error is a *statusError or a *reason.Fault. The
// response must be sent by the deadline.
func (h *Handler[T]) readBody(ctx context.Context, buffer *bytes.Buffer, s *share, w http.ResponseWriter, r *http.Request, deadline time.Time) error {
	length, body := r.ContentLength, r.Body
	if length < 0 || length > MaxBodyBytes {
		length, body = MaxBodyBytes, http.MaxBytesReader(w, r.Body, MaxBodyBytes)
	}
	if s.takeBody(ctx, length) != nil {
		return &reason.Fault{Reason: reason.Overloaded, Err: errOverloaded}
	}
	// A client that sends its body slowly, or does not read its response, must not
	// use memory for longer than the API server waits.
	connection := http.NewResponseController(w)
	readBy := time.Now().Add(bodyTimeout)
	if end, ok := ctx.Deadline(); ok && end.Before(readBy) {
		readBy = end
	}
	_ = connection.SetReadDeadline(readBy)
	_ = connection.SetWriteDeadline(deadline)
	err := readInto(buffer, body, int(length))
	if err == nil {
		// The server reads on, to notice a client that disconnects.
		_ = connection.SetReadDeadline(deadline)
	}
	return err
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
