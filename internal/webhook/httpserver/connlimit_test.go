// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// limit is the limit of connections in these tests.
const limit = 4

// fakeConn is a connection that has only an address, and records whether it was closed.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from)} }
func (c *fakeConn) Close() error         { c.closed = true; return nil }

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
		"as many as the limit":                                            {from(silent, waiting, idle, silent), nil},
		"of silent ones the first":                                        {from(silent, silent, silent, silent, silent), []int{0}},
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
			Use(server, limit)
			var conns []*fakeConn
			for _, o := range test.opened {
				conn := &fakeConn{from: o.from}
				conns = append(conns, conn)
				for _, state := range o.states {
					server.ConnState(conn, state)
				}
			}
			var closed []int
			for i, conn := range conns[:limit] {
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
	Use(server, limit)
	used := &fakeConn{from: "10.0.0.1"}
	server.ConnState(used, http.StateNew)
	open := []*fakeConn{used}
	for range 5 * limit {
		server.ConnState(used, http.StateActive)
		server.ConnState(used, http.StateIdle)
		other := &fakeConn{from: "10.0.0.1"}
		server.ConnState(other, http.StateNew)
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
		}), nil, limit, always)
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
		listener := serve(t, http.NotFoundHandler(), serverConfig(t), limit, always)
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
		if open != limit {
			t.Errorf("got %d open connections, want %d", open, limit)
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
		Use(server, 1)
		start := time.Now()
		server.ConnState(conn, http.StateNew)
		server.ConnState(&fakeConn{from: "10.0.0.1"}, http.StateNew)
		if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || time.Since(start) > 0 {
			t.Errorf("got error %v after %s, want a closed connection at once", err, time.Since(start))
		}
	})
}
