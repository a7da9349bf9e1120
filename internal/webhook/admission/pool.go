// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// patience is how long a request may wait for its client, since it was last given memory,
// while other requests wait. An API server sends and reads at once.
const patience = 200 * time.Millisecond

// pool is memory that the requests of all clients share, in bytes. A client is known by
// its address.
//
// Free memory goes to the client that holds the least, so no client can use more than
// its part while others wait. If too little becomes free, requests that wait for their
// client are interrupted: of the client that holds the most, the request that has waited
// for the longest time.
type pool struct {
	mu      sync.Mutex
	free    int64
	held    map[netip.Addr]int64
	waiting []*claim    // for memory, the first first
	idle    []*claim    // wait for their client, the first first
	ending  int64       // held by interrupted claims
	again   *time.Timer // nil unless a claim will have waited for patience
}

func newPool(bytes int64) *pool { return &pool{free: bytes, held: map[netip.Addr]int64{}} }

// claim is the part of a pool that one request holds. The pool's mutex protects it.
type claim struct {
	pool        *pool
	client      netip.Addr
	bytes       int64
	wanted      int64         // in addition, while it waits
	decided     chan struct{} // closed when it has the wanted bytes, or is interrupted
	since       time.Time     // when it began to wait for its client
	interrupt   func()        // makes the client's reads or writes fail
	interrupted bool
}

// take adds memory to the claim. It waits for memory until the given time.
func (c *claim) take(bytes int64, until time.Time) error {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.interrupted {
		return errOverloaded
	}
	c.wanted = bytes
	if len(p.waiting) == 0 && bytes <= p.free {
		p.give(c)
		return nil
	}
	c.decided = make(chan struct{})
	p.waiting = append(p.waiting, c)
	p.grant()
	p.mu.Unlock()
	select {
	case <-c.decided:
	case <-time.After(time.Until(until)):
	}
	p.mu.Lock()
	if p.stopWaiting(c) || c.interrupted {
		p.grant() // to claims behind this one
		return errOverloaded
	}
	return nil
}

// keep returns all but this many bytes to the pool.
func (c *claim) keep(bytes int64) {
	if c.pool == nil {
		return
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	freed := c.bytes - bytes
	if freed <= 0 {
		return
	}
	c.bytes = bytes
	c.pool.free += freed
	if c.pool.held[c.client] -= freed; c.pool.held[c.client] == 0 {
		delete(c.pool.held, c.client)
	}
	if c.interrupted {
		c.pool.ending -= freed
	}
	c.pool.grant()
}

// startIdle tells the pool that the claim waits for its client from now on.
func (c *claim) startIdle(interrupt func()) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.interrupt, c.since = interrupt, time.Now()
	c.pool.idle = append(c.pool.idle, c)
	c.pool.grant() // another claim may wait until this one can be interrupted
}

// endIdle tells the pool that the claim no longer waits for its client. It reports
// whether the claim was interrupted.
func (c *claim) endIdle() (interrupted bool) {
	if c.pool == nil {
		return false
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.pool.idle = remove(c.pool.idle, c)
	return c.interrupted
}

// give gives a claim the memory that it wants. Its client has sent enough to need it, so
// the client has as much time again.
func (p *pool) give(c *claim) {
	if before := len(p.idle); before > 0 {
		if p.idle = remove(p.idle, c); len(p.idle) < before {
			c.since = time.Now()
			p.idle = append(p.idle, c)
		}
	}
	p.free -= c.wanted
	p.held[c.client] += c.wanted
	c.bytes += c.wanted
}

// grant gives free memory to waiting claims, and of one client first to the claim that
// holds the most: its body is the next to be complete. A claim that needs more than there
// is does not let others pass, or it might never have its turn.
func (p *pool) grant() {
	for len(p.waiting) > 0 {
		next := slices.MinFunc(p.waiting, func(a, b *claim) int {
			return cmp.Or(p.compare(a, b), cmp.Compare(b.bytes, a.bytes))
		})
		if next.wanted > p.free {
			p.interrupt(next.wanted - p.free - p.ending)
			return
		}
		p.stopWaiting(next)
		p.give(next)
		close(next.decided)
	}
}

// compare compares how much the clients of two claims hold.
func (p *pool) compare(a, b *claim) int { return cmp.Compare(p.held[a.client], p.held[b.client]) }

// interrupt interrupts idle claims with this many bytes, as far as they have been idle
// for long enough.
func (p *pool) interrupt(bytes int64) {
	for bytes > 0 && len(p.idle) > 0 {
		longest := slices.MaxFunc(p.idle, p.compare)
		if rest := patience - time.Since(longest.since); rest > 0 {
			p.grantAfter(rest)
			return
		}
		p.idle = remove(p.idle, longest)
		longest.interrupted = true
		longest.interrupt()
		if p.stopWaiting(longest) {
			close(longest.decided)
		}
		p.ending += longest.bytes
		bytes -= longest.bytes
	}
}

// grantAfter calls grant after some time.
func (p *pool) grantAfter(d time.Duration) {
	if p.again != nil {
		return
	}
	p.again = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.again = nil
		p.grant()
	})
}

// stopWaiting reports whether the claim waited for memory.
func (p *pool) stopWaiting(c *claim) bool {
	before := len(p.waiting)
	p.waiting = remove(p.waiting, c)
	return len(p.waiting) < before
}

func remove(claims []*claim, c *claim) []*claim {
	return slices.DeleteFunc(claims, func(other *claim) bool { return other == c })
}
