// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// The limits of a Budget. A test in bounds adds them up.
const (
	// usualBodyBytes is larger than nearly all bodies.
	usualBodyBytes = bounds.UsualBody
	// usualDecisionBytes is larger than the cost of nearly all decisions.
	usualDecisionBytes = 512 << 10
	// maxDecisionBytes limits the memory charged to one decision.
	maxDecisionBytes = bounds.LargeDecisions
)

// Estimates of the memory that a decision uses, without the response.
const (
	// otherBytes is the memory that does not depend on the body's length: for the
	// volume, the annotations, and the findings about names in annotations.
	otherBytes = 64 << 10
	// copiesOfText is the number of copies of an annotation besides the body: one without
	// escape sequences, and a string. maxCopiedBytes exceeds the length of all annotations
	// that are read.
	copiesOfText, maxCopiedBytes = 2, 2 << 20
	// elementBytes is the memory for an element of a list. A container needs the most, for
	// its findings and additions.
	elementBytes = 1536
)

// DecisionBytes returns an upper bound of the memory that a decision about this review uses. It
// counts the objects in lists: each "{" that does not follow a colon. Braces in strings and white
// space can only make the result larger.
func DecisionBytes(body []byte) int {
	elements := 0
	for i := 0; ; i++ {
		next := bytes.IndexByte(body[i:], '{')
		if next < 0 {
			break
		}
		if i += next; i == 0 || body[i-1] != ':' {
			elements++
		}
	}
	return otherBytes + copiesOfText*min(len(body), maxCopiedBytes) + elementBytes*elements
}

// errOverloaded is returned if a request does not get memory in time.
var errOverloaded = &reason.Fault{Reason: reason.Overloaded, Err: errors.New("too many other requests; try again")}

// Budget limits the memory and the log lines of all requests of a process: its handlers
// share one.
//
// A request takes memory for its body while the body arrives, then for its decision,
// then for its response, before the patch is encoded, and returns the first two when the
// response is encoded. So it only waits for requests that are at a later stage, or that can
// be interrupted. A usual decision never waits for large ones.
type Budget struct {
	bodies, usual, large, responses *bounds.Pool
	lines                           *lineLimiter
}

// NewBudget returns a Budget with the default limits.
func NewBudget() *Budget {
	pool := func(size int64) *bounds.Pool { return bounds.NewPool(size, 0, errOverloaded) }
	return &Budget{
		bodies: pool(bounds.LargeBodies), usual: pool(bounds.UsualDecisions), large: pool(bounds.LargeDecisions),
		responses: pool(bounds.Responses), lines: newLineLimiter(),
	}
}

// share is the part of a Budget that one request holds.
type share struct {
	budget                   *Budget
	client                   netip.Addr
	body, decision, response bounds.Claim
}

// newShare returns the empty share of a request from this host:port.
func (b *Budget) newShare(remote string) share {
	return share{budget: b, client: bounds.AddressOf(remote)}
}

// takeDecision waits for memory for a decision of this cost.
func (s *share) takeDecision(ctx context.Context, cost int) error {
	bytes := min(int64(cost), maxDecisionBytes)
	s.decision = s.budget.usual.Claim(s.client)
	if bytes > usualDecisionBytes {
		s.decision = s.budget.large.Claim(s.client)
	}
	return s.decision.Take(ctx, bytes)
}

// takeResponse waits for memory for a response.
func (s *share) takeResponse(ctx context.Context, bytes int) error {
	s.response = s.budget.responses.Claim(s.client)
	return s.response.Take(ctx, min(int64(bytes), bounds.Responses))
}

// finish keeps only the memory for an encoded response, and waits for it if the request has
// none yet.
func (s *share) finish(ctx context.Context, bytes int) (err error) {
	if s.response.Bytes() == 0 {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		err = s.takeResponse(ctx, bytes)
	}
	s.response.Keep(int64(bytes))
	s.body.Keep(0)
	s.decision.Keep(0)
	return err
}

// release returns all memory.
func (s *share) release() {
	for _, c := range []*bounds.Claim{&s.body, &s.decision, &s.response} {
		c.Keep(0)
	}
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
