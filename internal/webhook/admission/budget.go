// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
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
//	 10 MiB  larger decisions, of at most 10 MiB
//	  6 MiB  responses with their patches, until their clients have read them
//	125 MiB
const (
	bodyPoolBytes     = 16 << 20
	usualPoolBytes    = 8 << 20
	largePoolBytes    = maxDecisionBytes
	responsePoolBytes = 6 << 20
	// usualBodyBytes is more than nearly all bodies have.
	usualBodyBytes = 64 << 10
	// usualDecisionBytes is more than nearly all decisions cost.
	usualDecisionBytes = 512 << 10
	// maxDecisionBytes limits the memory that a decision is charged.
	maxDecisionBytes = 10 << 20
)

// Limits of the memory that a decision uses, without the response.
const (
	// otherBytes is for what does not depend on the length of the body: the volume, the annotations
	// and the findings about names in annotations.
	otherBytes = 64 << 10
	// copiesOfText is how many copies of an annotation there are besides the body: one without
	// escape sequences, and a string. maxCopiedBytes is more than the length of all annotations
	// that are read.
	copiesOfText, maxCopiedBytes = 2, 2 << 20
	// elementBytes is for an element of a list. A container needs the most, for its findings and
	// additions.
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

// Budget limits the memory and the log lines of all requests of a process: its handlers
// share one.
//
// A request takes memory for its body while the body arrives, then for its decision,
// then for its response, before the patch is encoded, and returns the first two when the
// response is encoded. So it only waits for requests that are further on than itself, or that
// can be interrupted. A usual decision never waits for large ones.
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

// takeResponse waits for memory for a response.
func (s *share) takeResponse(bytes int, until time.Time) error {
	s.response = claim{pool: s.budget.responses, client: s.client}
	return s.response.take(min(int64(bytes), responsePoolBytes), until)
}

// finish keeps memory for an encoded response, and waits for the memory if the request has
// none for a response. It returns all other memory.
func (s *share) finish(bytes int, until time.Time) (err error) {
	if s.response.bytes == 0 {
		err = s.takeResponse(bytes, until)
	}
	s.response.keep(int64(bytes))
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
