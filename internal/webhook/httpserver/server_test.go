// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/test/support/hostile"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// connBuffer is the size of the buffers of a connection.
const connBuffer = 4 << 10

func always() bool { return true }

// serve runs the server of New until the test ends. It accepts connections once ready returns
// true.
func serve(t *testing.T, handler http.Handler, config *tls.Config, limit bounds.Connections, ready func() bool) *memnet.Listener {
	t.Helper()
	listener := memnet.Listen(connBuffer)
	server := New("memnet", handler, config, limit, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, server, listener, ready) }()
	t.Cleanup(func() {
		cancel()
		_ = server.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // the goroutines of its connections end
	})
	return listener
}

// serverConfig returns the configuration of a server with a certificate.
func serverConfig(t *testing.T) *tls.Config {
	t.Helper()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{issue(t, x509.Certificate{DNSNames: []string{"server"}}, nil)}}
}

// dialTLS returns a connection after the handshake.
func dialTLS(t *testing.T, listener *memnet.Listener, from string, protocols ...string) *tls.Conn {
	t.Helper()
	conn := tls.Client(memnet.Dial(t, listener, from), &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

// With six connections that each sent 1 MiB of header lines, a replica used 109 MiB.
func TestHeadersDoNotFillTheMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := memnet.Dial(t, serve(t, http.NotFoundHandler(), nil, bounds.Others, always), "10.0.0.1")
		sent := make(chan int, 1)
		go func() {
			n, _ := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("x:\r\n", 1<<18))
			sent <- n
		}()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %s, want 431", response.Status)
		}
		// net/http also reads two buffers of 4 KiB.
		if got, most := <-sent, maxHeaderBytes+2*4<<10+connBuffer; got > most {
			t.Errorf("the server took %d bytes of a header, want at most %d", got, most)
		}
	})
}

// With 200 connections that each sent a hello of 65 KB, a replica used 250 MiB.
func TestAHandshakeDoesNotFillTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := serve(t, http.NotFoundHandler(), serverConfig(t), bounds.Reviews, always)
		hello := hostile.Hello(bounds.FirstBytes)
		before := heap()
		for range bounds.Reviews.FreshOfOneAddress {
			if _, err := io.WriteString(memnet.Dial(t, listener, "10.0.0.2"), hello); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		each := (heap() - before) / int64(bounds.Reviews.FreshOfOneAddress)
		t.Logf("%d bytes of memory for a hello of %d bytes", each, len(hello))
		const stacks = 16 << 10 // of its goroutines
		if each+stacks > bounds.FreshBytes {
			t.Errorf("got %d bytes of memory for each connection, want at most %d", each, bounds.FreshBytes)
		}

		conn := memnet.Dial(t, listener, "10.0.0.2")
		sent := 0
		for long := hostile.Hello(60 << 10); sent < len(long); sent++ {
			if _, err := io.WriteString(conn, long[sent:sent+1]); err != nil {
				break
			}
			synctest.Wait()
		}
		if sent > bounds.FirstBytes+1 {
			t.Errorf("the server took %d bytes of a hello, want at most %d", sent, bounds.FirstBytes)
		}
	})
}

// heap returns the memory that is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAServerSpeaksOnlyHTTP1(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := serve(t, http.NotFoundHandler(), serverConfig(t), bounds.Others, always)
		if got := dialTLS(t, listener, "10.0.0.1", "h2", "http/1.1").ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("got protocol %q, want http/1.1", got)
		}
	})
}

// crypto/tls would wait 5 seconds more.
func TestAWriteEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		conn := dialTLS(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			start := time.Now()
			_ = http.NewResponseController(w).SetWriteDeadline(start.Add(100 * time.Millisecond))
			_, _ = w.Write(make([]byte, 1<<20))
			took <- time.Since(start)
		}), serverConfig(t), bounds.Others, always), "10.0.0.1")
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-took; got != 100*time.Millisecond {
			t.Errorf("the write ended after %s, want 100ms, its deadline", got)
		}
	})
}

func TestIdleClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/long" {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	})
	for name, test := range map[string]struct {
		request string
		https   bool
		want    time.Duration
	}{
		"a header that does not end":        {"GET / HTTP/1.1\r\n", false, 2 * time.Second},
		"a body that does not come":         {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n{", false, 35 * time.Second},
		"a response that is not read":       {"GET /long HTTP/1.1\r\nHost: x\r\n\r\n", false, 35 * time.Second},
		"a connection without a request":    {"", false, 2 * time.Second},
		"a connection without a handshake":  {"", true, 2 * time.Second},
		"a connection between two requests": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var config *tls.Config
				if test.https {
					config = serverConfig(t)
				}
				conn := memnet.Dial(t, serve(t, handler, config, bounds.Others, always), "10.0.0.1")
				if _, err := io.WriteString(conn, test.request); err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.want - time.Nanosecond)
				synctest.Wait()
				if isClosed(conn) {
					t.Errorf("the connection was closed before %s", test.want)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if !isClosed(conn) {
					t.Errorf("the connection is open after %s", test.want)
				}
			})
		})
	}
}

func TestConnectionsWaitUntilTheyCanBeServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ready atomic.Bool
		listener := serve(t, http.NotFoundHandler(), serverConfig(t), bounds.Others, ready.Load)
		client := tls.Client(memnet.Dial(t, listener, "10.0.0.1"), &tls.Config{InsecureSkipVerify: true})
		shaken := make(chan error, 1)
		go func() { shaken <- client.HandshakeContext(t.Context()) }()
		time.Sleep(time.Minute)
		select {
		case err := <-shaken:
			t.Fatalf("before it can serve: got %v, want the connection to wait", err)
		default:
		}
		ready.Store(true)
		start := time.Now()
		if err := <-shaken; err != nil {
			t.Errorf("the connection that waited: got %v, want a handshake", err)
		}
		if waited := time.Since(start); waited > ReadyInterval {
			t.Errorf("the connection waited for %s more, want at most %s", waited, ReadyInterval)
		}
	})
}

func TestAServerThatNeverBecomesReadyClosesItsSocket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		listener := memnet.Listen(connBuffer)
		ended := make(chan error, 1)
		go func() { ended <- Serve(ctx, new(http.Server), listener, func() bool { return false }) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("got %v, want no error", err)
		}
		if _, err := listener.Dial(t.Context(), "10.0.0.1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connect afterwards: got %v, want it refused", err)
		}
	})
}

func TestConnectionsAreClosedWhileDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		draining := make(chan struct{})
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		listener := serve(t, Closing(draining, handler), nil, bounds.Others, always)
		client := http.Client{Transport: &http.Transport{DialContext: listener.DialContext("10.0.0.1")}}
		post := func() (closed, reused bool) {
			t.Helper()
			trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
			request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, "http://lanyard", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			synctest.Wait() // the connection can be used again
			return response.Close, reused
		}
		var got []string
		for range 2 {
			closed, reused := post()
			got = append(got, fmt.Sprintf("closed %t, reused %t", closed, reused))
		}
		close(draining)
		for range 2 {
			closed, reused := post()
			got = append(got, fmt.Sprintf("closed %t, reused %t", closed, reused))
		}
		want := "closed false, reused false; closed false, reused true; closed true, reused true; closed true, reused false"
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("got two requests, and two while draining: %s; want %s", got, want)
		}
	})
}
