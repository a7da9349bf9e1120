// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

// fakeConn is a connection that only records whether it was closed.
type fakeConn struct {
	net.Conn
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)} }
func (c *fakeConn) Close() error         { c.closed = true; return nil }

// The tests of internal/webhook/httpserver show the effect of each limit.
func TestAnEmbeddedServerHasTheLimitsOfLanyardWebhook(t *testing.T) {
	t.Parallel()
	config := new(tls.Config)
	got := NewServer(ctrlwebhook.Options{Host: "10.0.0.9"}).(*server).limited(config, logr.Discard())
	type limits struct {
		Addr                                                      string
		MaxHeaderBytes                                            int
		ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
		Protocols                                                 string
	}
	want := limits{"10.0.0.9:9443", 8 << 10, 2 * time.Second, 35 * time.Second, 35 * time.Second, 3 * time.Minute, "{HTTP1}"}
	if diff := cmp.Diff(want, limits{
		got.Addr, got.MaxHeaderBytes, got.ReadHeaderTimeout, got.ReadTimeout, got.WriteTimeout, got.IdleTimeout, got.Protocols.String(),
	}); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if got.TLSConfig != config {
		t.Error("the server does not use the TLS configuration")
	}
	conns := make([]fakeConn, bounds.Reviews.FreshOfOneAddress+1)
	for i := range conns {
		got.ConnContext(t.Context(), &conns[i])
		got.ConnState(&conns[i], http.StateNew)
	}
	for i := range conns {
		if conns[i].closed != (i == 0) {
			t.Errorf("connection %d of %d of one address that have not sent a request: got closed %t, want only the first one closed", i, len(conns), conns[i].closed)
		}
	}
}
