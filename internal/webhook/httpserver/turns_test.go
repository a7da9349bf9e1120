// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheAddressWithTheFewestRequestsIsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const turns = 4
		var running, most atomic.Int64
		handler := InTurns(turns, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(100 * time.Millisecond)
			running.Add(-1)
		}))
		for range 7 * turns {
			go func() {
				for range 3 {
					getFrom(t, handler, "10.0.0.2", http.MethodGet, "")
				}
			}()
		}
		synctest.Wait()
		start := time.Now()
		got := getFrom(t, handler, "10.0.0.1", http.MethodGet, "").Code
		if took := time.Since(start); got != http.StatusOK || took > 200*time.Millisecond {
			t.Errorf("got status %d after %s, want 200 after the first of %d requests ends", got, took, turns)
		}
		time.Sleep(time.Minute)
		if got := most.Load(); got != turns {
			t.Errorf("got %d requests at a time, want at most %d", got, turns)
		}
	})
}

func TestARequestWithoutATurnGetsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := InTurns(1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(2 * waitTimeout) }))
		go getFrom(t, handler, "10.0.0.1", http.MethodGet, "")
		synctest.Wait()
		start := time.Now()
		got := getFrom(t, handler, "10.0.0.1", http.MethodGet, "").Code
		if took := time.Since(start); got != http.StatusServiceUnavailable || took != waitTimeout {
			t.Errorf("got status %d after %s, want 503 after %s", got, took, waitTimeout)
		}
		time.Sleep(2 * waitTimeout) // the first ends
	})
}
