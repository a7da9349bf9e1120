// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
)

func TestConnectionsAreClosedWhileDraining(t *testing.T) {
	t.Parallel()
	draining := make(chan struct{})
	server := httptest.NewServer(httpserver.Closing(draining, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	post := func() (closed, reused bool) {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.Close, reused
	}
	post()
	if closed, reused := post(); closed || !reused {
		t.Errorf("got closed %t and reused %t while serving, want the connection to stay open", closed, reused)
	}
	close(draining)
	if closed, _ := post(); !closed {
		t.Error("the connection stays open while draining")
	}
	if _, reused := post(); reused {
		t.Error("the same connection is reused while draining")
	}
}

func localListener(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// startGated runs a server that serves once ready is set, and returns its TLS
// check.
func startGated(ctx context.Context, t *testing.T, ready *atomic.Bool) (address string, check func(*http.Request) error, ended <-chan error) {
	t.Helper()
	source := httptest.NewUnstartedServer(http.NotFoundHandler())
	source.StartTLS()
	certificates := source.TLS.Certificates
	source.Close()
	listener := localListener(t)
	address = listener.Addr().String()
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if !ready.Load() {
			return nil, errors.New("no certificate yet")
		}
		return &certificates[0], nil
	}}
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := httpserver.New(address, handler, config, 10, logr.Discard())
	var serving atomic.Bool
	done := make(chan error, 1)
	go func() {
		done <- httpserver.Serve(ctx, server, listener, func() bool {
			serving.Store(ready.Load())
			return ready.Load()
		})
	}()
	return address, onceServing(&serving, checkTLS(address, nil)), done
}

func TestConnectionsWaitUntilTheyCanBeServed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ready atomic.Bool
	address, check, ended := startGated(ctx, t, &ready)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatalf("connect before it serves: %v", err)
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	shaken := make(chan error, 1)
	go func() { shaken <- client.HandshakeContext(ctx) }()
	select {
	case err := <-shaken:
		t.Fatalf("before it can serve: got %v, want the connection to wait", err)
	case <-time.After(10 * httpserver.ReadyInterval):
	}
	start := time.Now()
	if err := check(httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)); err == nil || err.Error() != "not serving yet" {
		t.Errorf("before it serves: got %v, want that it does not serve yet", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("the check took %s, want it not to connect", took)
	}
	ready.Store(true)
	if err := <-shaken; err != nil {
		t.Errorf("the connection that waited: got %v, want a handshake", err)
	}
	if err := check(httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)); err != nil {
		t.Errorf("while it serves: got %v, want it ready", err)
	}
	_ = conn.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end: got %v, want no error", err)
	}
}

func TestAServerThatNeverBecomesReadyClosesItsSocket(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	address, _, ended := startGated(ctx, t, new(atomic.Bool))
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect afterwards: got %v, want it refused", err)
	}
}
