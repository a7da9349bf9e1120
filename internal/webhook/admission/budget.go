// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"net/netip"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

// The limits of a Budget, of which bounds.Stages has the sum. The memory of a decision is
// counted where the object is read: see Bounds in pkg/mutate/pod.go.
const (
	// usualBodyBytes is more than nearly all bodies have.
	usualBodyBytes = bounds.UsualBody
	// usualDecisionBytes is more than nearly all decisions cost.
	usualDecisionBytes = 512 << 10
	// maxDecisionBytes limits the memory that a decision is charged.
	maxDecisionBytes = bounds.LargeDecisions
)

// Budget limits the memory and the log lines of all requests of a process: its handlers
// share one.
//
// A request takes memory for its body while the body arrives, then for its decision,
// then for its response, and returns the first two when it has the third. So it only waits
// for requests that are further on than itself, or that can be interrupted. A usual
// request never waits for large ones.
type Budget struct {
	bodies, usual, large, responses *bounds.Pool
	lines                           *lineLimiter
}

// NewBudget returns a Budget with the limits of lanyard-webhook.
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
	address, _ := netip.ParseAddrPort(remote) // others share the zero address
	return share{budget: b, client: address.Addr().Unmap()}
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

// takeResponse waits for memory for a response, and returns all other memory.
func (s *share) takeResponse(ctx context.Context, bytes int) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	s.response = s.budget.responses.Claim(s.client)
	err := s.response.Take(ctx, min(int64(bytes), bounds.Responses))
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
