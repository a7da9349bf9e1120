// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	attacker  = netip.MustParseAddr("10.0.0.1")
	apiserver = netip.MustParseAddr("10.0.0.2")
	another   = netip.MustParseAddr("10.0.0.3")
)

var errTaken = errors.New("taken")

// take adds to a claim, with a long deadline.
func take(c *Claim, n int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.Take(ctx, n)
}

// A client with very many requests does not delay the request of another client by more
// than the request in progress.
func TestTheClientWithTheLeastMemoryIsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 0, errTaken)
		var claims []*Claim
		var taken []netip.Addr
		var mu sync.Mutex
		var waiting sync.WaitGroup
		start := func(client netip.Addr) {
			c := &Claim{pool: p, client: client}
			claims = append(claims, c)
			waiting.Go(func() {
				if err := take(c, 50); err != nil {
					t.Errorf("%s: %v", client, err)
				}
				mu.Lock()
				defer mu.Unlock()
				taken = append(taken, client)
			})
			synctest.Wait()
		}
		for range 10 {
			start(attacker)
		}
		start(apiserver)
		claims[0].Keep(0)
		synctest.Wait()
		if len(taken) != 3 || taken[2] != apiserver {
			t.Fatalf("got memory for %v, want it for the API server when the first claim ended", taken)
		}
		for _, c := range claims[1:] {
			synctest.Wait()
			c.Keep(0)
		}
		waiting.Wait()
		if p.free != 100 || len(p.held) != 0 || len(p.waiting) != 0 {
			t.Errorf("got %d bytes free, %v held and %d waiting, want all free", p.free, p.held, len(p.waiting))
		}
	})
}

// The pool interrupts the claim that has been idle for the longest time, of the client
// that holds the most.
func TestAnIdleClaimIsInterruptedWhenAnotherOneWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 0, errTaken)
		var interrupted []string
		idle := func(name string, client netip.Addr) {
			c := &Claim{pool: p, client: client}
			if err := take(c, 25); err != nil {
				t.Fatal(err)
			}
			c.StartIdle(func() {
				interrupted = append(interrupted, name)
				go func() { // as its handler does
					if !c.EndIdle() {
						t.Errorf("%s does not know that it was interrupted", name)
					}
					c.Keep(0)
				}()
			})
			time.Sleep(time.Millisecond)
		}
		idle("another's", another)
		idle("attacker's first", attacker)
		idle("attacker's second", attacker)
		idle("apiserver's", apiserver)
		start := time.Now()
		if err := take(&Claim{pool: p, client: apiserver}, 25); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > patience {
			t.Errorf("the claim waited for %s, want at most %s", waited, patience)
		}
		synctest.Wait()
		if len(interrupted) != 1 || interrupted[0] != "attacker's first" {
			t.Errorf("got %q interrupted, want the attacker's first", interrupted)
		}
	})
}

// Nothing else happens between the claim becoming idle and its interruption.
func TestAClaimThatBecomesIdleLaterIsInterruptedToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 0, errTaken)
		slow := &Claim{pool: p, client: attacker}
		if err := take(slow, 100); err != nil {
			t.Fatal(err)
		}
		taken := make(chan error, 1)
		go func() { taken <- take(&Claim{pool: p, client: apiserver}, 100) }()
		synctest.Wait() // it waits
		slow.StartIdle(func() { go slow.Keep(0) })
		start := time.Now()
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > patience {
			t.Errorf("the claim waited for %s, want at most %s", waited, patience)
		}
	})
}

// Otherwise, the bodies of one client could block each other.
func TestTheLargestPartialBodyIsCompletedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 0, errTaken)
		holder := &Claim{pool: p, client: apiserver}
		small, large := &Claim{pool: p, client: apiserver}, &Claim{pool: p, client: apiserver}
		for c, bytes := range map[*Claim]int64{holder: 60, small: 10, large: 30} {
			if err := take(c, bytes); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []*Claim{small, large} {
			go func() {
				if err := take(c, 60); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		holder.Keep(0)
		synctest.Wait()
		if large.bytes != 90 || small.bytes != 10 {
			t.Errorf("got %d and %d bytes, want the larger body to have 90", large.bytes, small.bytes)
		}
		large.Keep(0)
		synctest.Wait()
	})
}

func TestAClaimThatWaitsInVainTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 0, errTaken)
		first, second := Claim{pool: p, client: attacker}, Claim{pool: p, client: apiserver}
		if err := take(&first, 60); err != nil {
			t.Fatal(err)
		}
		if err := take(&second, 60); !errors.Is(err, errTaken) {
			t.Errorf("got error %v, want %v", err, errTaken)
		}
		first.Keep(0)
		second.Keep(0)
		if p.free != 100 || len(p.waiting) != 0 {
			t.Errorf("got %d bytes free and %d waiting, want all free", p.free, len(p.waiting))
		}
	})
}

func TestAClaimWhoseCallerIsGoneWaitsNoLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 0, errTaken)
		first, second := p.Claim(attacker), p.Claim(apiserver)
		if err := take(&first, 60); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); leave() }()
		start := time.Now()
		if err := second.Take(ctx, 60); !errors.Is(err, errTaken) || time.Since(start) != time.Second {
			t.Errorf("got error %v after %s, want %v after 1s", err, time.Since(start), errTaken)
		}
		if len(p.waiting) != 0 || p.Held() != 60 {
			t.Errorf("got %d waiting and %d bytes held, want none and 60", len(p.waiting), p.Held())
		}
	})
}

// Other clients still get their turn.
func TestTheClientWithTheMostWaitingClaimsIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(1, 4, errTaken)
		refused := map[netip.Addr]int{}
		var mu sync.Mutex
		var waiting sync.WaitGroup
		leave := make(chan struct{})
		for _, client := range []netip.Addr{attacker, attacker, attacker, attacker, attacker, attacker, another, apiserver} {
			waiting.Go(func() {
				c := p.Claim(client)
				if err := take(&c, 1); err != nil {
					mu.Lock()
					defer mu.Unlock()
					refused[client]++
					return
				}
				<-leave
				c.Keep(0)
			})
			synctest.Wait()
		}
		if len(refused) != 1 || refused[attacker] != 3 || len(p.waiting) != 4 {
			t.Errorf("got %v refused and %d waiting, want three of the attacker and 4", refused, len(p.waiting))
		}
		close(leave)
		waiting.Wait()
	})
}
