// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// patience is how long a request may wait for its client after it was given memory while
// other requests wait. API servers send and read without delay.
const patience = 200 * time.Millisecond

// Pool is a resource that the requests of all clients share: bytes of memory, or turns. Clients are
// told apart by their addresses.
//
// Free memory goes to the client that holds the least, so no client can use more than its
// share while others wait. If too little becomes free, a request that waits for its client is
// interrupted: of the client that holds the most, the one that has waited longest.
type Pool struct {
	most    int   // claims that may wait; 0 for any number
	taken   error // of a claim that does not get what it wants
	size    int64
	mu      sync.Mutex
	free    int64
	held    map[netip.Addr]int64
	waiting []*Claim    // for memory, the first first
	idle    []*Claim    // wait for their client, the first first
	ending  int64       // held by interrupted claims
	again   *time.Timer // nil unless a claim will have waited for patience
}

// NewPool returns a Pool of this size. If more than waiting claims wait, one of the client
// with the most waiting claims fails with the error taken. Zero means no limit.
func NewPool(size int64, waiting int, taken error) *Pool {
	return &Pool{most: waiting, taken: taken, size: size, free: size, held: map[netip.Addr]int64{}}
}

// Held returns the number of bytes in use.
func (p *Pool) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size - p.free
}

// Claim returns the claim of a client, which holds nothing yet.
func (p *Pool) Claim(client netip.Addr) Claim { return Claim{pool: p, client: client} }

// Claim is the part of a pool that one request holds. The pool's mutex protects it. The zero
// value belongs to no pool and holds nothing.
type Claim struct {
	pool        *Pool
	client      netip.Addr
	bytes       int64
	wanted      int64         // in addition, while it waits
	decided     chan struct{} // closed when it has the wanted bytes, or is interrupted
	since       time.Time     // when it began to wait for its client
	interrupt   func()        // makes the client's reads or writes fail
	interrupted bool
}

// Take adds to the claim. It waits until enough is free or the context ends.
func (c *Claim) Take(ctx context.Context, bytes int64) error {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.interrupted {
		return p.taken
	}
	c.wanted = bytes
	if len(p.waiting) == 0 && bytes <= p.free {
		p.give(c)
		return nil
	}
	c.decided = make(chan struct{})
	p.waiting = append(p.waiting, c)
	if p.most > 0 && len(p.waiting) > p.most {
		p.refuse()
	}
	p.grant()
	p.mu.Unlock()
	select {
	case <-c.decided:
	case <-ctx.Done():
	}
	p.mu.Lock()
	if p.stopWaiting(c) || c.interrupted {
		p.grant() // to claims behind this one
		return p.taken
	}
	return nil
}

// Bytes returns the number of bytes that the claim holds.
func (c *Claim) Bytes() int64 {
	if c.pool == nil {
		return 0
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	return c.bytes
}

// Keep returns all but this many bytes to the pool.
func (c *Claim) Keep(bytes int64) {
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

// StartIdle tells the pool that the claim starts to wait for its client.
func (c *Claim) StartIdle(interrupt func()) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.interrupt, c.since = interrupt, time.Now()
	c.pool.idle = append(c.pool.idle, c)
	c.pool.grant() // another claim may wait until this one can be interrupted
}

// EndIdle tells the pool that the claim no longer waits for its client. It reports
// whether the claim was interrupted.
func (c *Claim) EndIdle() (interrupted bool) {
	if c.pool == nil {
		return false
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.pool.idle = remove(c.pool.idle, c)
	return c.interrupted
}

// give gives a claim the memory that it wants, and restarts the client's time, because the
// client has sent enough to need it.
func (p *Pool) give(c *Claim) {
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

// grant gives free memory to waiting claims. Among claims of one client, the one that holds
// the most comes first, because its body is nearest to complete. A claim that needs more than
// is free blocks the others, so that large requests do not starve.
func (p *Pool) grant() {
	for len(p.waiting) > 0 {
		next := slices.MinFunc(p.waiting, func(a, b *Claim) int {
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
func (p *Pool) compare(a, b *Claim) int { return cmp.Compare(p.held[a.client], p.held[b.client]) }

// interrupt interrupts claims that have been idle for long enough, until they free this many
// bytes.
func (p *Pool) interrupt(bytes int64) {
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

// grantAfter schedules a call of grant.
func (p *Pool) grantAfter(d time.Duration) {
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

// refuse ends the wait of the last claim of the client with the most waiting claims.
func (p *Pool) refuse() {
	waiting, last := map[netip.Addr]int{}, p.waiting[0]
	for _, c := range p.waiting {
		if waiting[c.client]++; waiting[c.client] >= waiting[last.client] {
			last = c
		}
	}
	last.interrupted = true
	p.stopWaiting(last)
	close(last.decided)
}

// stopWaiting removes the claim from the queue, and reports whether it was waiting.
func (p *Pool) stopWaiting(c *Claim) bool {
	before := len(p.waiting)
	p.waiting = remove(p.waiting, c)
	return len(p.waiting) < before
}

func remove(claims []*Claim, c *Claim) []*Claim {
	return slices.DeleteFunc(claims, func(other *Claim) bool { return other == c })
}

type clientKey struct{}

// AddressOf returns the address in a host:port, which identifies a client. All clients
// without an IP address count as one.
func AddressOf(remote string) netip.Addr {
	address, _ := netip.ParseAddrPort(remote)
	return address.Addr().Unmap()
}

// WithClient returns a context for the work that a client causes.
func WithClient(ctx context.Context, client netip.Addr) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// Client returns the client that causes the work, or the zero address.
func Client(ctx context.Context) netip.Addr {
	client, _ := ctx.Value(clientKey{}).(netip.Addr)
	return client
}
