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
	"strings"
	"time"
)

// MaxBodyBytes is the longest review that is read. The apiserver takes objects
// of up to 3 MiB, and an update's review holds two of them.
const MaxBodyBytes = 7 << 20

// usualBodyBytes is more than nearly all reviews have.
const usualBodyBytes = 64 << 10

// maxLargeBytes is how much the reviews that are longer than usual may have
// together, from when they are read until they are answered. The others wait for
// room, as long as the apiserver does, with only their beginning read: whoever
// sends many fills neither the memory nor the way of the usual ones.
const maxLargeBytes = 16 << 20

// errNoRoom is for a large review for which there was no room in time. Its
// beginning was read, and the status is for one that is no review's.
var errNoRoom = errors.New("too many other large reviews at once")

// Bounds of the time that one request may take.
const (
	// defaultTimeout is the apiserver's own for a webhook that sets none.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the longest that a webhook configuration can set.
	maxTimeout = 30 * time.Second
)

// checkRequest looks at all but the body, and gives how long the apiserver waits.
// Otherwise it gives the status that refuses the request.
func checkRequest(w http.ResponseWriter, r *http.Request) (timeout time.Duration, code int, err error) {
	if timeout, err = requestTimeout(r); err != nil {
		return 0, http.StatusBadRequest, err
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return 0, http.StatusMethodNotAllowed, fmt.Errorf("got method %s, want POST", r.Method)
	}
	if err := checkContentType(r.Header.Get("Content-Type")); err != nil {
		return 0, http.StatusUnsupportedMediaType, err
	}
	return timeout, http.StatusOK, nil
}

// requestTimeout is what the apiserver says it will wait, in ?timeout=.
func requestTimeout(r *http.Request) (time.Duration, error) {
	// The apiserver's whole query is this: it needs no map.
	value, alone := strings.CutPrefix(r.URL.RawQuery, "timeout=")
	if !alone || strings.ContainsAny(value, "&%+;") {
		value = r.URL.Query().Get("timeout")
	}
	if value == "" {
		return defaultTimeout, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return 0, fmt.Errorf("query parameter timeout: got %q, want a positive duration such as 10s", value)
	}
	return min(timeout, maxTimeout), nil
}

func checkContentType(contentType string) error {
	if contentType == jsonType[0] {
		return nil
	}
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != jsonType[0] {
		return fmt.Errorf("got Content-Type %q, want application/json", contentType)
	}
	return nil
}

// read reads the body into the buffer. Otherwise it gives errNoRoom, or the status
// that refuses the request. The answer has to be taken by the deadline, and done
// to be called then.
func (h *Handler) read(ctx context.Context, buffer *bytes.Buffer, w http.ResponseWriter, r *http.Request, deadline time.Time) (done func(), code int, err error) {
	if 0 <= r.ContentLength && r.ContentLength <= usualBodyBytes {
		// A usual body is there at once, and is spared what bounds cost; where the
		// connection knows no deadline, the client's end of it has to do.
		code, err = readInto(buffer, r.Body, int(r.ContentLength))
		return func() {}, code, err
	}
	// A large body that trickles in is not waited for any longer than the
	// apiserver would, nor is a peer that does not take its answer.
	connection := http.NewResponseController(w)
	_ = errors.Join(connection.SetReadDeadline(deadline), connection.SetWriteDeadline(deadline))
	release, code, err := h.readLarge(ctx, buffer, http.MaxBytesReader(w, r.Body, MaxBodyBytes), r.ContentLength)
	return func() {
		release()
		// The server itself does so with the other one.
		_ = connection.SetWriteDeadline(time.Time{})
	}, code, err
}

// readLarge reads the beginning of a body, and the rest when there is room.
func (h *Handler) readLarge(ctx context.Context, buffer *bytes.Buffer, body io.Reader, length int64) (release func(), code int, err error) {
	release = func() {}
	code, err = readInto(buffer, io.LimitReader(body, usualBodyBytes), usualBodyBytes)
	if err != nil || buffer.Len() < usualBodyBytes {
		return release, code, err
	}
	if length < 0 || length > MaxBodyBytes {
		length = MaxBodyBytes
	}
	if h.large.Acquire(ctx, length) != nil {
		// A client that is still sending may miss an answer that comes before.
		_, _ = io.Copy(io.Discard, body)
		return release, http.StatusBadRequest, errNoRoom
	}
	code, err = readInto(buffer, body, int(length)-buffer.Len())
	return func() { h.large.Release(length) }, code, err
}

// readInto reads all of a body, of which so many bytes are expected.
func readInto(buffer *bytes.Buffer, body io.Reader, expected int) (code int, err error) {
	// ReadFrom wants room left at the end to find that there is no more.
	buffer.Grow(expected + bytes.MinRead)
	if _, err := buffer.ReadFrom(body); err != nil {
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			return http.StatusRequestEntityTooLarge, fmt.Errorf("got a body of more than %d bytes", tooLarge.Limit)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return http.StatusBadRequest, errors.New("got a body that is shorter than its Content-Length")
		}
		return http.StatusBadRequest, fmt.Errorf("read body: %w", err)
	}
	return http.StatusOK, nil
}
