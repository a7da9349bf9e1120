// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/pkg/webhook"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// The tests of internal/webhook/httpserver show the effect of each limit.
func TestAPortDisconnectsASilentClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := memnet.Listen(1 << 10)
		port := webhook.NewPort("metrics", "10.0.0.9:8080", http.NotFoundHandler())
		if port.Server.Addr != "10.0.0.9:8080" || port.Name != "metrics" || port.Server.MaxHeaderBytes != 8<<10 {
			t.Errorf("got address %q, name %q and headers of %d bytes", port.Server.Addr, port.Name, port.Server.MaxHeaderBytes)
		}
		port.Listener = listener
		go func() { _ = port.Start(t.Context()) }()
		conn := memnet.Dial(t, listener, "10.0.0.1")
		want := time.Now().Add(2 * time.Second)
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("got a byte, want the end of the connection")
		}
		if got := time.Now(); !got.Equal(want) {
			t.Errorf("got the end at %s, want it after 2 seconds, at %s", got, want)
		}
	})
}

func TestAPortHasAFewConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := memnet.Listen(1 << 10)
		port := webhook.NewPort("probes", "", http.NotFoundHandler())
		defer func() { _ = port.Server.Close() }()
		port.Listener = listener
		go func() { _ = port.Start(t.Context()) }()
		first := memnet.Dial(t, listener, "10.0.0.1")
		for range 32 {
			synctest.Wait()
			memnet.Dial(t, listener, "10.0.0.1")
		}
		start := time.Now()
		if _, err := first.Read(make([]byte, 1)); err == nil || time.Since(start) > 0 {
			t.Errorf("got error %v after %s, want the first of 33 connections closed at once", err, time.Since(start))
		}
	})
}
