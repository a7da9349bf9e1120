// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
)

// withObject returns a review that is n bytes longer.
func withObject(n int) string {
	return strings.Replace(review, `"object":{`, `"object":{"x":"`+strings.Repeat("x", n-len(`"x":"",`))+`",`, 1)
}

// gate is a Decider whose decisions wait until the test continues them.
type gate struct {
	decide
	entered, leave chan struct{}
}

func newGate() gate {
	g := gate{entered: make(chan struct{}), leave: make(chan struct{})}
	g.decide = func(context.Context, *admission.Request[object]) (admission.Response, error) {
		g.entered <- struct{}{}
		<-g.leave
		return untroubled, nil
	}
	return g
}

// Large bodies wait for each other. Others never wait for them.
func TestRequestsWaitForTheirShareOfTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		largest := withObject(admission.MaxBodyBytes - len(review))
		g := newGate()
		f := newFixture(g)
		var allowed sync.WaitGroup
		post := func(body string) {
			allowed.Go(func() {
				if _, answer := f.post(t, body); !strings.Contains(answer, `"allowed":true`) {
					t.Errorf("got %s for a review of %d bytes, want it allowed", answer, len(body))
				}
			})
		}
		for _, body := range []string{largest, withObject(3 << 20), review} { // these fit
			post(body)
			<-g.entered
		}
		response, answer := f.send(t, newRequest(t, "/?timeout=1s", largest))
		if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(answer, "lanyard: overloaded: too many other requests") {
			t.Errorf("got %s %s, want 503 and overloaded", response.Status, answer)
		}
		post(largest)
		synctest.Wait()
		select {
		case <-g.entered:
			t.Error("got a decision about a review for which there is no memory")
		default:
		}
		close(g.leave)
		<-g.entered
		allowed.Wait()
		if held := f.budget.Held(); held != (admission.Held{}) {
			t.Errorf("got %+v held after all requests, want nothing", held)
		}
	})
}

// withElements returns a review of an object with a list of n objects.
func withElements(n int) string {
	return strings.Replace(review, `"object":{`, `"object":{"x":[`+strings.Repeat("{},", n)+`{}],`, 1)
}

func TestHandlersShareOneBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		first, second := newFixture(g), newFixture(nil)
		second.handler = admission.NewHandler(allow(untroubled), first.budget, second, logr.Discard())
		big := withElements(7000) // one of them fits
		go first.post(t, big)
		<-g.entered
		start := time.Now()
		response, _ := second.send(t, newRequest(t, "/?timeout=5s", big))
		if waited := time.Since(start); response.StatusCode != http.StatusServiceUnavailable || waited != 4500*time.Millisecond {
			t.Errorf("got %s after %s while the other handler has the budget, want 503 after 4.5s", response.Status, waited)
		}
		close(g.leave)
		synctest.Wait()
		if response, answer := second.post(t, big); response.StatusCode != http.StatusOK {
			t.Errorf("got %s %s when the budget is free again, want 200", response.Status, answer)
		}
	})
}
