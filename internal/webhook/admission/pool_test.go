// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

var (
	attacker  = netip.MustParseAddr("10.0.0.1")
	apiserver = netip.MustParseAddr("10.0.0.2")
	another   = netip.MustParseAddr("10.0.0.3")
)

// until returns a time long after patience.
func until() time.Time { return time.Now().Add(time.Minute) }

// TestMemoryGoesToTheClientThatHoldsTheLeast: a client with very many requests does
// not delay the request of another client by more than the request in progress.
func TestMemoryGoesToTheClientThatHoldsTheLeast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(100)
		var claims []*claim
		var taken []netip.Addr
		var mu sync.Mutex
		var waiting sync.WaitGroup
		start := func(client netip.Addr) {
			c := &claim{pool: p, client: client}
			claims = append(claims, c)
			waiting.Go(func() {
				if err := c.take(50, until()); err != nil {
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
		claims[0].keep(0)
		synctest.Wait()
		if len(taken) != 3 || taken[2] != apiserver {
			t.Fatalf("got memory for %v, want it for the API server when the first claim ended", taken)
		}
		for _, c := range claims[1:] {
			synctest.Wait()
			c.keep(0)
		}
		waiting.Wait()
		if p.free != 100 || len(p.held) != 0 || len(p.waiting) != 0 {
			t.Errorf("got %d bytes free, %v held and %d waiting, want all free", p.free, p.held, len(p.waiting))
		}
	})
}

// TestAnIdleClaimIsInterruptedWhenAnotherOneWaits: of the client that holds the most, the
// one that is idle for the longest time.
func TestAnIdleClaimIsInterruptedWhenAnotherOneWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(100)
		var interrupted []string
		idle := func(name string, client netip.Addr) {
			c := &claim{pool: p, client: client}
			if err := c.take(25, until()); err != nil {
				t.Fatal(err)
			}
			c.startIdle(func() {
				interrupted = append(interrupted, name)
				go func() { // as its handler does
					if !c.endIdle() {
						t.Errorf("%s does not know that it was interrupted", name)
					}
					c.keep(0)
				}()
			})
			time.Sleep(time.Millisecond)
		}
		idle("another's", another)
		idle("attacker's first", attacker)
		idle("attacker's second", attacker)
		idle("apiserver's", apiserver)
		start := time.Now()
		if err := (&claim{pool: p, client: apiserver}).take(25, until()); err != nil {
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

// TestAClaimThatBecomesIdleLaterIsInterruptedToo: nothing else happens in between.
func TestAClaimThatBecomesIdleLaterIsInterruptedToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(100)
		slow := &claim{pool: p, client: attacker}
		if err := slow.take(100, until()); err != nil {
			t.Fatal(err)
		}
		taken := make(chan error, 1)
		go func() { taken <- (&claim{pool: p, client: apiserver}).take(100, until()) }()
		synctest.Wait() // it waits
		slow.startIdle(func() { go slow.keep(0) })
		start := time.Now()
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > patience {
			t.Errorf("the claim waited for %s, want at most %s", waited, patience)
		}
	})
}

// TestTheBodyThatHoldsTheMostIsCompletedFirst: bodies of one client do not stop each
// other.
func TestTheBodyThatHoldsTheMostIsCompletedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(100)
		holder := &claim{pool: p, client: apiserver}
		small, large := &claim{pool: p, client: apiserver}, &claim{pool: p, client: apiserver}
		for c, bytes := range map[*claim]int64{holder: 60, small: 10, large: 30} {
			if err := c.take(bytes, until()); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []*claim{small, large} {
			go func() {
				if err := c.take(60, until()); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		holder.keep(0)
		synctest.Wait()
		if large.bytes != 90 || small.bytes != 10 {
			t.Errorf("got %d and %d bytes, want the larger body to have 90", large.bytes, small.bytes)
		}
		large.keep(0)
		synctest.Wait()
	})
}

func TestAResponseHoldsNoMemoryForItsDecision(t *testing.T) {
	t.Parallel()
	b := NewBudget()
	s := b.newShare("10.0.0.1:1234")
	s.body = claim{pool: b.bodies, client: s.client}
	if err := s.body.take(1<<20, until()); err != nil {
		t.Fatal(err)
	}
	if err := s.takeDecision(100<<10, until()); err != nil {
		t.Fatal(err)
	}
	if err := s.takeResponse(300<<10, until()); err != nil {
		t.Fatal(err)
	}
	if s.body.bytes == 0 || s.decision.bytes == 0 {
		t.Error("got no memory for the objects before the response is encoded, want it held")
	}
	if err := s.finish(200<<10, until()); err != nil {
		t.Fatal(err)
	}
	if b.bodies.free != bodyPoolBytes || b.usual.free != usualPoolBytes || b.responses.held[attacker] != 200<<10 {
		t.Errorf("got %d, %d and %d bytes free, want only the response to hold memory", b.bodies.free, b.usual.free, b.responses.free)
	}
	s.release()
	if b.responses.free != responsePoolBytes {
		t.Errorf("got %d bytes free for responses, want all", b.responses.free)
	}
}

// patched is a Decider with a patch that is not encoded yet.
type patched struct {
	raw
	encoded bool
}

func (p *patched) Decide(context.Context, *Request[string]) (Response, error) {
	return Response{Reason: reason.Injected, Patch: p}, nil
}

func (p *patched) Size() int { return 1 << 20 }

func (p *patched) Bytes() []byte {
	p.encoded = true
	return []byte("[]")
}

func (p *patched) RecordAdmission(string, string, string, time.Duration) {}

func TestAPatchIsEncodedWhenThereIsMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget, decider := NewBudget(), new(patched)
		handler := NewHandler(decider, budget, decider, logr.Discard())
		post := func() int {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?timeout=1s", strings.NewReader(
				`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{}}}`))
			request.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			return answer.Code
		}
		other := claim{pool: budget.responses, client: another}
		if err := other.take(responsePoolBytes-2<<20, until()); err != nil {
			t.Fatal(err)
		}
		if code := post(); code != http.StatusServiceUnavailable || decider.encoded {
			t.Errorf("without memory: got status %d, and a patch that is encoded: %t, want 503 and false", code, decider.encoded)
		}
		other.keep(0)
		if code := post(); code != http.StatusOK || !decider.encoded {
			t.Errorf("with memory: got status %d, and a patch that is encoded: %t, want 200 and true", code, decider.encoded)
		}
	})
}

func TestDecisionBytesCountsTheElementsOfLists(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`[{},{"a":{}},{}]`:     3,
		`{"a":{},"b":null}`:    1,
		`[null,[{}],null,"}"]`: 1,
		`{"a":["x",1,":{"]}`:   1,
		`{"a": {}}`:            2, // more than there are, but never fewer
	} {
		empty := DecisionBytes([]byte(strings.Repeat(" ", len(text))))
		if got := (DecisionBytes([]byte(text)) - empty) / elementBytes; got != want {
			t.Errorf("%s: got %d elements, want %d", text, got, want)
		}
	}
}

func TestAClaimThatWaitsInVainTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(100)
		first, second := claim{pool: p, client: attacker}, claim{pool: p, client: apiserver}
		if err := first.take(60, until()); err != nil {
			t.Fatal(err)
		}
		if err := second.take(60, time.Now().Add(time.Second)); !errors.Is(err, errOverloaded) {
			t.Errorf("got error %v, want %v", err, errOverloaded)
		}
		first.keep(0)
		second.keep(0)
		if p.free != 100 || len(p.waiting) != 0 {
			t.Errorf("got %d bytes free and %d waiting, want all free", p.free, len(p.waiting))
		}
	})
}
