// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// The limits of a Budget. The chart limits the program to 128 MiB, of which some
// 30 MiB are used without a request, and up to 29 MiB for the ServiceAccounts of
// the cluster.
const (
	// maxBodies limits the bodies over usualBodyBytes. Shorter ones are limited by
	// the number of connections.
	maxBodies = 16 << 20
	// maxDecisions limits what usual decisions take, and what large ones take.
	maxDecisions = 12 << 20
	// usualDecisionBytes is more than nearly all decisions take.
	usualDecisionBytes = 512 << 10
)

// Budget limits the memory of all requests of a process: its handlers share one.
//
// A request first takes its share for the body, then one for the decision. It
// waits for each until its time is over. There are three parts, so that a request
// only waits for requests that can end, and a usual one never for large ones.
type Budget struct {
	bodies, usual, large *semaphore.Weighted // in bytes
}

// NewBudget returns a Budget with the limits of lanyard-webhook.
func NewBudget() *Budget {
	return &Budget{
		bodies: semaphore.NewWeighted(maxBodies),
		usual:  semaphore.NewWeighted(maxDecisions),
		large:  semaphore.NewWeighted(maxDecisions),
	}
}

// share is what one request holds of a Budget.
type share struct {
	budget *Budget
	body   int64
	// decision is held of part.
	decision int64
	part     *semaphore.Weighted
}

// takeBody waits for memory for a body of this length.
func (s *share) takeBody(ctx context.Context, length int64) error {
	if err := s.budget.bodies.Acquire(ctx, length); err != nil {
		return err
	}
	s.body = length
	return nil
}

// takeDecision waits for memory for a decision of this size.
func (s *share) takeDecision(ctx context.Context, size int) error {
	part := s.budget.usual
	if size > usualDecisionBytes {
		part = s.budget.large
	}
	bytes := min(int64(size), maxDecisions)
	if err := part.Acquire(ctx, bytes); err != nil {
		return err
	}
	s.decision, s.part = bytes, part
	return nil
}

// shrink returns everything but the memory of the answer.
func (s *share) shrink(answer int) {
	s.budget.bodies.Release(s.body)
	s.body = 0
	if keep := min(int64(answer), s.decision); s.part != nil {
		s.part.Release(s.decision - keep)
		s.decision = keep
	}
}

// release returns all of it.
func (s *share) release() { s.shrink(0) }
