// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net/netip"
	"time"
)

// The limits of a Budget. The chart limits the program to 128 MiB:
//
//	 30 MiB  the program without a request
//	 29 MiB  the ServiceAccounts of the cluster (metadatacache)
//	 26 MiB  256 connections (httpserver), each with 40 kB and a usual body
//	 16 MiB  larger bodies, of at most 7 MiB, as far as they have arrived
//	  8 MiB  usual decisions, of at most 512 KiB each
//	 12 MiB  larger decisions, of at most 12 MiB
//	  4 MiB  responses that their clients have not read
//	125 MiB
//
// The memory of a decision is counted where the object is read: see Bounds in
// pkg/mutate/pod.go.
const (
	bodyPoolBytes     = 16 << 20
	usualPoolBytes    = 8 << 20
	largePoolBytes    = maxDecisionBytes
	responsePoolBytes = 4 << 20
	// usualBodyBytes is more than nearly all bodies have.
	usualBodyBytes = 64 << 10
	// usualDecisionBytes is more than nearly all decisions cost.
	usualDecisionBytes = 512 << 10
	// maxDecisionBytes limits the memory that a decision is charged.
	maxDecisionBytes = 12 << 20
)

// Budget limits the memory and the log lines of all requests of a process: its handlers
// share one.
//
// A request takes memory for its body while the body arrives, then for its decision,
// then for its response, and returns the first two when it has the third. So it only waits
// for requests that are further on than itself, or that can be interrupted. A usual
// request never waits for large ones.
type Budget struct {
	bodies, usual, large, responses *pool
	lines                           *lineLimiter
}

// NewBudget returns a Budget with the limits of lanyard-webhook.
func NewBudget() *Budget {
	return &Budget{
		bodies: newPool(bodyPoolBytes), usual: newPool(usualPoolBytes), large: newPool(largePoolBytes),
		responses: newPool(responsePoolBytes), lines: newLineLimiter(),
	}
}

// share is the part of a Budget that one request holds.
type share struct {
	budget                   *Budget
	client                   netip.Addr
	body, decision, response claim
}

// newShare returns the empty share of a request from this host:port.
func (b *Budget) newShare(remote string) share {
	address, _ := netip.ParseAddrPort(remote) // others share the zero address
	return share{budget: b, client: address.Addr().Unmap()}
}

// takeDecision waits for memory for a decision of this cost.
func (s *share) takeDecision(cost int, until time.Time) error {
	bytes := min(int64(cost), maxDecisionBytes)
	s.decision = claim{pool: s.budget.usual, client: s.client}
	if bytes > usualDecisionBytes {
		s.decision.pool = s.budget.large
	}
	return s.decision.take(bytes, until)
}

// takeResponse waits for memory for a response, and returns all other memory.
func (s *share) takeResponse(bytes int, until time.Time) error {
	s.response = claim{pool: s.budget.responses, client: s.client}
	err := s.response.take(min(int64(bytes), responsePoolBytes), until)
	s.body.keep(0)
	s.decision.keep(0)
	return err
}

// release returns all memory.
func (s *share) release() {
	for _, c := range []*claim{&s.body, &s.decision, &s.response} {
		c.keep(0)
	}
}
