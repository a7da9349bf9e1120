// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// The limits of a Budget. The chart limits the program to 128 MiB, of which some
// 30 MiB are used without a request, and up to 32 MiB for the ServiceAccounts of
// the cluster.
const (
	// maxBodies limits the bodies over usualBodyBytes. Shorter ones are limited by
	// the number of connections.
	maxBodies = 16 << 20
	// maxDecisions limits what decisions and responses take.
	maxDecisions = 16 << 20
)

// Budget limits the memory of all requests of a process: its handlers share one.
//
// A request first takes its share for the body, then one for the decision. It
// waits for each until its time is over. The two are apart, so that a request that
// waits for its decision only waits for requests that can end.
type Budget struct {
	bodies, decisions *semaphore.Weighted // in bytes
}

// NewBudget returns a Budget with the limits of lanyard-webhook.
func NewBudget() *Budget {
	return &Budget{bodies: semaphore.NewWeighted(maxBodies), decisions: semaphore.NewWeighted(maxDecisions)}
}

// share is what one request holds of a Budget.
type share struct {
	budget           *Budget
	bodies, decision int64
}

// takeBody waits for memory for a body of this length.
func (s *share) takeBody(ctx context.Context, length int64) error {
	if err := s.budget.bodies.Acquire(ctx, length); err != nil {
		return err
	}
	s.bodies = length
	return nil
}

// takeDecision waits for memory for a decision of this size.
func (s *share) takeDecision(ctx context.Context, size int) error {
	bytes := min(int64(size), maxDecisions)
	if err := s.budget.decisions.Acquire(ctx, bytes); err != nil {
		return err
	}
	s.decision = bytes
	return nil
}

// release returns all of it.
func (s *share) release() {
	s.budget.bodies.Release(s.bodies)
	s.budget.decisions.Release(s.decision)
	s.bodies, s.decision = 0, 0
}
