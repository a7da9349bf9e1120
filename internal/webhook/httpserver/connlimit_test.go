// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// limit is the limit of connections in these tests.
const limit = 4

var limits = bounds.Connections{Open: limit, Fresh: limit - 1, FreshOfOneAddress: limit / 2, Ending: 100 * limit}

// fakeConn is a connection that has only an address, and records whether it was closed.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from)} }
func (c *fakeConn) Close() error         { c.closed = true; return nil }

// accept makes the server take a connection.
func accept(server *http.Server, from string) *fakeConn {
	conn := &fakeConn{from: from}
	server.ConnContext(context.Background(), conn)
	server.ConnState(conn, http.StateNew)
	return conn
}

// The states that a connection has had, in their order.
var (
	silent  = []http.ConnState{http.StateNew}
	waiting = []http.ConnState{http.StateNew, http.StateActive}
	idle    = []http.ConnState{http.StateNew, http.StateActive, http.StateIdle}
	ended   = []http.ConnState{http.StateNew, http.StateClosed}
)

// opened is a connection that a client opens.
type opened struct {
	from   string
	states []http.ConnState
}

// from returns the connections of the address 10.0.0.1.
func from(states ...[]http.ConnState) (all []opened) {
	for _, s := range states {
		all = append(all, opened{"10.0.0.1", s})
	}
	return all
}

// flood returns many connections of the address 10.0.0.2.
func flood(states []http.ConnState) []opened {
	return slices.Repeat([]opened{{"10.0.0.2", states}}, 10*limit)
}

func TestTheConnectionThatIsUnchangedForTheLongestTimeIsClosed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opened []opened // in this order
		closed []int    // of the first connections, up to limit
	}{
		"as many as the limit": {from(silent, waiting, idle, silent), nil},
		"of silent ones the first, as half of them may be of one address": {from(silent, silent, silent), []int{0}},
		"of silent ones one of the address with the most":                 {slices.Concat(from(silent), []opened{{"10.0.0.2", silent}, {"10.0.0.2", silent}, {"10.0.0.3", silent}}), []int{1}},
		"a silent one rather than an older one that was used":             {from(idle, idle, silent, silent, silent), []int{2}},
		"one that was used if only few are silent":                        {from(silent, idle, waiting, idle, silent), []int{1}},
		"an idle one rather than a request that has just begun":           {from(idle, waiting, waiting, waiting, silent), []int{0}},
		"a request that takes long rather than one that is idle":          {from(waiting, idle, idle, idle, silent), []int{0}},
		"none if the others have ended":                                   {slices.Concat(from(silent, idle), flood(ended)), nil},
		"none that was used before a flood":                               {slices.Concat(from(idle), flood(silent)), []int{1, 2, 3}},
		"none of another address in a flood of silent connections":        {slices.Concat(from(silent), flood(silent)), []int{1, 2, 3}},
		"none of another address in a flood of connections with requests": {slices.Concat(from(silent), flood(waiting)), []int{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := new(http.Server)
			Use(server, limits)
			var conns []*fakeConn
			for _, o := range test.opened {
				conn := accept(server, o.from)
				conns = append(conns, conn)
				for _, state := range o.states[1:] {
					server.ConnState(conn, state)
				}
			}
			var closed []int
			for i, conn := range conns[:min(limit, len(conns))] {
				if conn.closed {
					closed = append(closed, i)
				}
			}
			if !slices.Equal(closed, test.closed) {
				t.Errorf("got connections %v closed, want %v", closed, test.closed)
			}
		})
	}
}

// A connection that serves requests stays, however many others come and go.
func TestAConnectionInUseStays(t *testing.T) {
	t.Parallel()
	server := new(http.Server)
	Use(server, limits)
	used := accept(server, "10.0.0.1")
	open := []*fakeConn{used}
	for range 5 * limit {
		server.ConnState(used, http.StateActive)
		server.ConnState(used, http.StateIdle)
		other := accept(server, "10.0.0.1")
		open = slices.DeleteFunc(append(open, other), func(c *fakeConn) bool { return c.closed })
		if len(open) > limit || open[0] != used {
			t.Fatalf("got %d connections open and the first one's closed %t, want it open among at most %d", len(open), used.closed, limit)
		}
	}
}

// net/http reports the states that the limit needs.
func TestAServerLimitsItsConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		defer close(done)
		listener := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-done
			}
		}), nil, limits, always)
		var conns []*memnet.Conn
		connect := func(text string) {
			conn := memnet.Dial(t, listener, "10.0.0.1")
			_, _ = io.WriteString(conn, text)
			synctest.Wait()
			conns = append(conns, conn)
		}
		request := "GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
		connect(fmt.Sprintf(request, "/"))     // idle
		connect("G")                           // part of a header counts as nothing
		connect(fmt.Sprintf(request, "/wait")) // with a request
		connect("")
		connect("")
		connect("")
		for i, want := range []bool{false, true, false, true, false, false} {
			if got := isClosed(conns[i]); got != want {
				t.Errorf("connection %d: got closed %t, want %t", i, got, want)
			}
		}
	})
}

// isClosed reports whether the server has closed the connection.
func isClosed(conn net.Conn) bool {
	_, err := conn.Write([]byte{'x'})
	return err != nil
}

// A client that does not finish the TLS handshake does not delay the close.
func TestHTTPSConnectionsAreClosedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := serve(t, http.NotFoundHandler(), serverConfig(t), limits, always)
		var conns []*memnet.Conn
		for range 10 * limit {
			conns = append(conns, memnet.Dial(t, listener, "10.0.0.2"))
		}
		synctest.Wait()
		open := 0
		for _, conn := range conns {
			if !isClosed(conn) {
				open++
			}
		}
		if open != limits.FreshOfOneAddress {
			t.Errorf("got %d open connections, want %d", open, limits.FreshOfOneAddress)
		}
		dialTLS(t, listener, "10.0.0.1")
	})
}

// crypto/tls would wait 5 seconds until the client reads its last message.
func TestAClientThatDoesNotReadDoesNotDelayTheClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := memnet.Listen(connBuffer)
		client := tls.Client(memnet.Dial(t, listener, "10.0.0.1"), &tls.Config{InsecureSkipVerify: true})
		go func() { _ = client.HandshakeContext(t.Context()) }()
		raw, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Server(raw, serverConfig(t))
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = raw.Write(make([]byte, 2*connBuffer)) // now the buffer is full
		server := new(http.Server)
		Use(server, bounds.Connections{Open: 1, Fresh: 1, FreshOfOneAddress: 1, Ending: 1})
		start := time.Now()
		server.ConnContext(t.Context(), conn)
		server.ConnState(conn, http.StateNew)
		accept(server, "10.0.0.1")
		if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || time.Since(start) > 0 {
			t.Errorf("got error %v after %s, want a closed connection at once", err, time.Since(start))
		}
	})
}

// net/http ends the context of a closed connection only while it reads from the connection.
func TestTheHandlerOfAConnectionThatMakesRoomEnds(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"without a body":                   "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"with the start of another one":    "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n",
		"with a body that nobody reads":    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
		"with a body that does not come":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n",
		"with a body that waits for a 100": "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended, leave := make(chan struct{}, 2*limit), make(chan struct{})
				defer close(leave)
				listener := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-r.Context().Done():
						ended <- struct{}{}
					case <-leave:
					}
				}), nil, limits, always)
				for range 2 * limit {
					_, _ = io.WriteString(memnet.Dial(t, listener, "10.0.0.2"), request)
					synctest.Wait()
				}
				if got := len(ended); got != limit {
					t.Errorf("got %d handlers ended after %d connections, want %d", got, 2*limit, limit)
				}
			})
		})
	}
}

// A handler that computes does not see that its connection was closed.
func TestAnAddressWhoseHandlersDoNotEndIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		leave := make(chan struct{})
		limits := bounds.Connections{Open: 8, Fresh: 4, FreshOfOneAddress: 2, Ending: 8}
		listener := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/quick" {
				return
			}
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-leave
		}), nil, limits, always)
		flood := func(from string) {
			for range 100 {
				_, _ = io.WriteString(memnet.Dial(t, listener, from), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				synctest.Wait()
			}
		}
		for i, want := range []int64{8 + 4, 8 + 6, 8 + 7} { // a half of the rest
			flood(fmt.Sprintf("10.0.0.%d", i+2))
			if got := running.Load(); got > want {
				t.Errorf("got %d handlers after floods of %d addresses, want at most %d", got, i+1, want)
			}
		}
		conn := memnet.Dial(t, listener, "10.0.0.1")
		_, _ = io.WriteString(conn, "GET /quick HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Errorf("another address: got %v, want a response", err)
		}
		close(leave)
		synctest.Wait()
		flood("10.0.0.2")
		if got := most.Load(); got > int64(limits.Open+limits.Ending) {
			t.Errorf("got %d handlers at a time, want at most %d", got, limits.Open+limits.Ending)
		}
	})
}
