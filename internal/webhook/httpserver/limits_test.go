// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// startLimited serves handler with the limits of New, over TLS if
// tlsConfig is set, until the test ends.
func startLimited(t *testing.T, handler http.Handler, tlsConfig *tls.Config) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := New(listener.Addr().String(), handler, tlsConfig, 10, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	t.Cleanup(func() {
		cancel()
		_ = server.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	go func() { ended <- Serve(ctx, server, listener, func() bool { return true }) }()
	return listener.Addr().String()
}

// Six connections with 1 MiB of header lines each took a replica to 109 MiB. Not
// parallel: the test measures the memory of the process.
//
//nolint:paralleltest // see above
func TestHeadersDoNotFillTheMemory(t *testing.T) {
	address := startLimited(t, http.NotFoundHandler(), nil)
	var header bytes.Buffer
	header.WriteString("GET /metrics HTTP/1.1\r\nHost: x\r\n")
	for i := range 140_000 {
		fmt.Fprintf(&header, "%05x:\r\n", i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 6 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = conn.Write(header.Bytes()) }()
		answer, _ := io.ReadAll(conn) // the server may reset the connection
		if len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
			t.Errorf("got %.60q, want status 431", answer)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 8 {
		t.Errorf("got %d MiB allocated for six long headers, want at most 8", got)
	}
}

func TestAServerSpeaksOnlyHTTP1(t *testing.T) {
	t.Parallel()
	source := httptest.NewUnstartedServer(http.NotFoundHandler())
	source.StartTLS()
	certificates := source.TLS.Certificates
	source.Close()
	address := startLimited(t, http.NotFoundHandler(), &tls.Config{MinVersion: tls.VersionTLS13, Certificates: certificates})
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("got protocol %q, want http/1.1", got)
	}
}

// crypto/tls would wait 5 seconds more.
func TestAWriteEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	source := httptest.NewUnstartedServer(http.NotFoundHandler())
	source.StartTLS()
	certificates := source.TLS.Certificates
	source.Close()
	took := make(chan time.Duration, 1)
	address := startLimited(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		start := time.Now()
		_ = http.NewResponseController(w).SetWriteDeadline(start.Add(100 * time.Millisecond))
		_, _ = w.Write(make([]byte, 64<<20))
		took <- time.Since(start)
	}), &tls.Config{MinVersion: tls.VersionTLS13, Certificates: certificates})
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := <-took; got > 5*time.Second {
		t.Errorf("the write ended after %s, want it to end at its deadline of 100ms", got)
	}
}

// The test shortens the timeouts that New sets.
func TestIdleClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, 64<<20))
	})
	for name, request := range map[string]string{
		"a header that does not end":     "GET / HTTP/1.1\r\n",
		"a body that does not come":      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n{",
		"a response that is not read":    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"a connection without a request": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := New(listener.Addr().String(), handler, nil, 10, logr.Discard())
			if server.ReadHeaderTimeout <= 0 || server.ReadTimeout <= 0 || server.WriteTimeout <= 0 || server.IdleTimeout <= 0 {
				t.Fatalf("got a server without limits: %+v", server)
			}
			server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout = 50*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
			closed := make(chan struct{}, 1)
			server.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					closed <- struct{}{}
				}
			}
			go func() { _ = server.Serve(listener) }()
			defer server.Close()
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Fatal("the connection is open after a minute")
			}
		})
	}
}
