// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package singlewrite_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/singlewrite"
)

// counted is a listener that counts what its connections are told to write.
type counted struct {
	net.Listener
	writes atomic.Int64
	broken atomic.Bool // whether they fail
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, c}, nil
}

type countedConn struct {
	net.Conn
	of *counted
}

func (c *countedConn) Write(p []byte) (int, error) {
	if c.of.broken.Load() {
		return 0, errors.New("the connection broke")
	}
	c.of.writes.Add(1)
	return c.Conn.Write(p)
}

// answer is of so many bytes, no two neighbours alike.
func answer(length int) []byte {
	return bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz"), length/36+1)[:length]
}

// writeAnswer is a handler: the path says how long its answer is, and it has a
// Content-Length but for ?declared=false.
func writeAnswer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	length, err := strconv.Atoi(r.URL.Path[1:])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Query().Get("declared") != "false" {
		w.Header().Set("Content-Length", strconv.Itoa(length))
	}
	_, _ = w.Write(answer(length))
}

// serve starts an HTTPS server with the handler, whose answers go in one piece
// where used says so.
func serve(t *testing.T, h http.Handler, used bool) (server *httptest.Server, listener *counted) {
	t.Helper()
	server = httptest.NewUnstartedServer(h)
	listener = &counted{Listener: server.Listener}
	server.Listener = listener
	server.EnableHTTP2 = true
	if used {
		server.Listener = singlewrite.Use(server.Config, listener)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, listener
}

// client speaks h1 or h2 to the server.
func client(t *testing.T, server *httptest.Server, protocol string) *http.Client {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(protocol == "h1")
	protocols.SetHTTP2(protocol == "h2")
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, client *http.Client, url string) ([]byte, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(answer(10_000)))
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

func TestAnAnswerOverHTTP1GoesInOneWrite(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		length          int
		without, writes int64
	}{
		"that net/http itself sends at once": {500, 1, 1},
		"of a few more than it buffers":      {5_000, 2, 1},
		"of several records of TLS":          {40_000, 4, 1},
		"that is longer than what is held":   {300_000, 20, 3},
	} {
		for _, used := range []bool{false, true} {
			want := test.without
			if used {
				want = test.writes
			}
			t.Run(fmt.Sprintf("%s, used: %v", name, used), func(t *testing.T) {
				t.Parallel()
				server, listener := serve(t, http.HandlerFunc(writeAnswer), used)
				client := client(t, server, "h1")
				url := fmt.Sprintf("%s/%d", server.URL, test.length)
				// crypto/tls begins a connection with short records.
				for range 4 {
					if _, err := get(t, client, server.URL+"/200000"); err != nil {
						t.Fatal(err)
					}
				}
				before := listener.writes.Load()
				got, err := get(t, client, url)
				if err != nil || !bytes.Equal(got, answer(test.length)) {
					t.Fatalf("got %d bytes and error %v, want the %d of the answer", len(got), err, test.length)
				}
				if n := listener.writes.Load() - before; n != want {
					t.Errorf("got %d writes, want %d", n, want)
				}
			})
		}
	}
}

func TestEveryAnswerArrivesWhole(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"h1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			server, _ := serve(t, http.HandlerFunc(writeAnswer), true)
			client := client(t, server, protocol)
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					for _, length := range []int{0, 1, 3071, 3072, 4096, 16384, 36864, 130_000, 131_072, 2_000_000} {
						for _, query := range []string{"", "?declared=false"} {
							got, err := get(t, client, fmt.Sprintf("%s/%d%s", server.URL, length, query))
							if err != nil || !bytes.Equal(got, answer(length)) {
								t.Errorf("%d%s: got %d bytes and error %v", length, query, len(got), err)
							}
						}
					}
				})
			}
			callers.Wait()
		})
	}
}

func TestAClientThatWaitsForTheServerIsNotHeldUp(t *testing.T) {
	t.Parallel()
	server, _ := serve(t, http.HandlerFunc(writeAnswer), true)
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	// The second request comes behind the first one, over the same connection.
	for _, length := range []int{40_000, 5_000} {
		if _, err := fmt.Fprintf(conn, "POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", length); err != nil {
			t.Fatal(err)
		}
		line, err := reader.ReadString('\n')
		if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("got %q and error %v, want to be told to go on", line, err)
		}
		if _, err := reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "body"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !bytes.Equal(got, answer(length)) {
			t.Fatalf("got %d bytes and error %v, want the %d of the answer", len(got), err, length)
		}
	}
}

func TestAHandlerIsToldOfABrokenConnection(t *testing.T) {
	t.Parallel()
	for _, length := range []int{40_000, 300_000} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			failed := make(chan error, 1)
			var listener *counted
			server, listener := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				listener.broken.Store(true)
				_, err := w.Write(answer(length))
				failed <- err
			}), true)
			if _, err := get(t, client(t, server, "h1"), server.URL); err == nil {
				t.Error("got an answer over a connection that broke")
			}
			if err := <-failed; err == nil {
				t.Error("the handler was told that its answer went out")
			}
		})
	}
}

func TestTheServersOwnSettingsStay(t *testing.T) {
	t.Parallel()
	type key struct{}
	values := make(chan any, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values <- r.Context().Value(key{})
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("the server's own ResponseWriter is out of reach: %v", err)
		}
	}))
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, key{}, "kept")
	}
	server.Listener = singlewrite.Use(server.Config, server.Listener)
	server.StartTLS()
	defer server.Close()
	if _, err := get(t, client(t, server, "h1"), server.URL); err != nil {
		t.Fatal(err)
	}
	if got := <-values; got != "kept" {
		t.Errorf("got %v of the server's own ConnContext, want it kept", got)
	}
}
