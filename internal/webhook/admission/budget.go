// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// The limits of a Budget. The chart limits the program to 128 MiB:
//
//	 30 MiB  the program without a request
//	 29 MiB  the ServiceAccounts of the cluster (metadatacache)
//	 26 MiB  256 connections (httpserver), each with 40 kB and a usual body
//	 12 MiB  usual requests: a decision of at most 512 KiB each
//	 28 MiB  large requests: a body of at most 7 MiB, a decision of at most 12 MiB
//	125 MiB
//
// The memory of a decision is counted where the object is read: see Bounds in
// internal/mutate/pod.go.
const (
	usualPoolBytes = 12 << 20
	largePoolBytes = 28 << 20
	// usualBodyBytes is more than nearly all bodies have.
	usualBodyBytes = 64 << 10
	// usualDecisionBytes is more than nearly all decisions cost.
	usualDecisionBytes = 512 << 10
	// maxDecisionBytes limits the memory that a decision is charged.
	maxDecisionBytes = 12 << 20
)

// Budget limits the memory of all requests of a process: its handlers share one.
//
// A request takes its share once, and waits for it until its time is over. So it
// only waits for requests that can end. A usual request never waits for large ones.
type Budget struct {
	usual, large *semaphore.Weighted // in bytes
}

// NewBudget returns a Budget with the limits of lanyard-webhook.
func NewBudget() *Budget {
	return &Budget{usual: semaphore.NewWeighted(usualPoolBytes), large: semaphore.NewWeighted(largePoolBytes)}
}

// share is the part of a Budget that one request holds.
type share struct {
	budget *Budget
	pool   *semaphore.Weighted // nil if nothing is held
	bytes  int64
}

// takeBody waits for memory for a large body, and for the largest decision: the
// cost of the decision is not known before the body is read.
func (s *share) takeBody(ctx context.Context, length int64) error {
	if length <= usualBodyBytes {
		return nil
	}
	return s.take(ctx, s.budget.large, length+maxDecisionBytes)
}

// takeDecision waits for memory for a decision of this cost, after takeBody.
func (s *share) takeDecision(ctx context.Context, cost int) error {
	bytes := min(int64(cost), maxDecisionBytes)
	switch {
	case s.pool != nil:
		s.keep(s.bytes - maxDecisionBytes + bytes)
		return nil
	case bytes > usualDecisionBytes:
		return s.take(ctx, s.budget.large, bytes)
	}
	return s.take(ctx, s.budget.usual, bytes)
}

func (s *share) take(ctx context.Context, pool *semaphore.Weighted, bytes int64) error {
	if err := pool.Acquire(ctx, bytes); err != nil {
		return err
	}
	s.pool, s.bytes = pool, bytes
	return nil
}

// keep returns all but this many bytes.
func (s *share) keep(bytes int64) {
	if s.pool != nil && bytes < s.bytes {
		s.pool.Release(s.bytes - bytes)
		s.bytes = bytes
	}
}
