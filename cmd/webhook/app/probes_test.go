// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnExpensiveCheckRunsOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, failure := 0, errors.New("down")
		check := recent(func(r *http.Request) error {
			if err := r.Context().Err(); err != nil {
				t.Errorf("got a context with error %v, want one that goes on", err)
			}
			calls++
			return failure
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ask := func() error {
			return check(httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
		}
		for range 100 {
			if err := ask(); !errors.Is(err, failure) {
				t.Fatalf("got %v, want %v", err, failure)
			}
		}
		if calls != 1 {
			t.Errorf("got %d checks for 100 requests at once, want 1", calls)
		}
		failure = nil
		time.Sleep(verdictAge)
		if err := ask(); err != nil || calls != 2 {
			t.Errorf("got error %v after %d checks, want none after a second one", err, calls)
		}
	})
}

// A connection to a server that is not serving yet would only wait.
func TestTheCheckConnectsOnceItServes(t *testing.T) {
	t.Parallel()
	var serving atomic.Bool
	calls := 0
	check := onceServing(&serving, func(*http.Request) error {
		calls++
		return nil
	})
	if err := check(nil); err == nil || err.Error() != "not serving yet" || calls != 0 {
		t.Errorf("got error %v and %d connections, want that it does not serve yet", err, calls)
	}
	serving.Store(true)
	if err := check(nil); err != nil || calls != 1 {
		t.Errorf("got error %v and %d connections while it serves, want one", err, calls)
	}
}

func TestTheCheckMakesAHandshake(t *testing.T) {
	t.Parallel()
	encrypted, plain := httptest.NewTLSServer(nil), httptest.NewServer(nil)
	defer encrypted.Close()
	defer plain.Close()
	for server, want := range map[*httptest.Server]string{encrypted: "", plain: "connect to the server: tls: "} {
		err := checkTLS(server.Listener.Addr().String(), nil)(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
