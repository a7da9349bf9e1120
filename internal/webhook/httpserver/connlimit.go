// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

// Use limits the server's connections and thereby its handlers, because a connection has at
// most one handler and counts until the handler has returned. It sets the server's ConnState
// and ConnContext, and wraps its Handler.
//
// If there are too many, a new connection replaces one of the address with the most
// connections: the one whose state has not changed for the longest time. Connections that
// have not sent a request yet have a separate limit, because a TLS handshake takes more
// memory than a request, and only replace each other. So a client with many connections loses
// its own first. The connections of API servers and kubelets stay, because they are few or in
// use.
//
// The context of a closed connection ends, and so does its handler, unless it is computing.
// While too many such handlers are running, new connections are refused. An address gets at
// most as much of this limit as it leaves free for others.
func Use(server *http.Server, limit bounds.Connections) {
	l := &limiter{
		limit: limit, open: map[net.Conn]*connection{}, fresh: newGroup(), used: newGroup(), ending: map[netip.Addr]int{},
	}
	server.ConnState, server.ConnContext = l.changed, l.accepted
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		if errors.Is(context.Cause(r.Context()), errNoRoom) {
			panic(http.ErrAbortHandler) // or net/http would wait for a client whose body it has not read
		}
	})
}

// errNoRoom is the cause of a context that ended because its connection made room for another.
var errNoRoom = errors.New("the connection made room for others")

// limiter counts connections until their handlers have returned.
type limiter struct {
	limit bounds.Connections

	mu          sync.Mutex
	open        map[net.Conn]*connection
	fresh, used group              // fresh ones have not sent a request yet
	changes     int64              // of the state of any connection
	ending      map[netip.Addr]int // were closed to make room for an address
	endingCount int
}

// connection is a connection and its place in the limiter.
type connection struct {
	net.Conn
	address netip.Addr
	cancel  context.CancelCauseFunc // ends its handler
	in      *group                  // nil once it was closed to make room for roomFor
	element *list.Element
	changed int64 // number of the last change
	roomFor netip.Addr
}

// group lists the connections of each address, the least recently changed first.
type group struct {
	lists map[netip.Addr]*list.List // of *connection
	count int
}

func newGroup() group { return group{lists: map[netip.Addr]*list.List{}} }

func (g *group) add(c *connection) {
	from := g.lists[c.address]
	if from == nil {
		from = list.New()
		g.lists[c.address] = from
	}
	c.in, c.element = g, from.PushBack(c)
	g.count++
}

func (g *group) remove(c *connection) {
	from := g.lists[c.address]
	from.Remove(c.element)
	if from.Len() == 0 {
		delete(g.lists, c.address)
	}
	g.count--
	c.in = nil
}

// oldest returns the least recently changed connection of an address.
func (g *group) oldest(address netip.Addr) *connection {
	return g.lists[address].Front().Value.(*connection)
}

// most returns the oldest connection of the address with the most connections. If several
// addresses tie, it returns the oldest of all.
func (g *group) most() (oldest *connection) {
	n := 0
	for from, connections := range g.lists {
		first := g.oldest(from)
		if connections.Len() > n || connections.Len() == n && first.changed < oldest.changed {
			oldest, n = first, connections.Len()
		}
	}
	return oldest
}

// accepted returns the context for the requests of a connection.
func (l *limiter) accepted(ctx context.Context, conn net.Conn) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[conn] = &connection{Conn: conn, address: bounds.AddressOf(conn.RemoteAddr().String()), cancel: cancel}
	return ctx
}

func (l *limiter) changed(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.open[conn]
	if c == nil {
		return // it was refused
	}
	l.changes++
	c.changed = l.changes
	switch {
	case state == http.StateNew:
		l.admit(c)
	case state == http.StateClosed || state == http.StateHijacked:
		l.remove(c)
	case c.in != nil:
		c.in.remove(c)
		l.used.add(c)
		if first, ok := unencrypted(conn).(*guardedConn); ok {
			first.allowAll()
		}
	}
}

// admit counts a new connection, or refuses it.
func (l *limiter) admit(c *connection) {
	if l.ending[c.address] >= l.limit.Ending-l.endingCount {
		delete(l.open, c.Conn)
		closeAtOnce(c)
		return
	}
	l.fresh.add(c)
	switch {
	case l.fresh.lists[c.address].Len() > l.limit.FreshOfOneAddress:
		l.makeRoom(c.address, l.fresh.oldest(c.address))
	case l.fresh.count > l.limit.Fresh:
		l.makeRoom(c.address, l.fresh.most())
	case l.fresh.count+l.used.count > l.limit.Open:
		l.makeRoom(c.address, l.used.most())
	}
}

// makeRoom closes a connection to make room for an address.
func (l *limiter) makeRoom(address netip.Addr, c *connection) {
	c.in.remove(c)
	c.roomFor = address
	l.ending[address]++
	l.endingCount++
	closeAtOnce(c)
}

// remove forgets a connection whose handler has returned.
func (l *limiter) remove(c *connection) {
	delete(l.open, c.Conn)
	c.cancel(nil)
	if c.in != nil {
		c.in.remove(c)
		return
	}
	l.endingCount--
	if l.ending[c.roomFor]--; l.ending[c.roomFor] == 0 {
		delete(l.ending, c.roomFor)
	}
}

// closeAtOnce closes a connection without a TLS close_notify, which could block, and cancels
// its handler.
func closeAtOnce(c *connection) {
	c.cancel(errNoRoom)
	_ = unencrypted(c.Conn).Close()
}

// unencrypted returns the connection below TLS.
func unencrypted(conn net.Conn) net.Conn {
	if encrypted, ok := conn.(*tls.Conn); ok {
		return encrypted.NetConn()
	}
	return conn
}

// guardedListener accepts guardedConns.
type guardedListener struct{ net.Listener }

func (l guardedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &guardedConn{Conn: conn}
	c.left.Store(bounds.FirstBytes)
	return c, nil
}

// guardedConn is a connection that reads at most bounds.FirstBytes until allowAll is called,
// and writes nothing after a failed write.
//
// If a client does not read before the write deadline, net/http closes the connection, and
// crypto/tls waits 5 more seconds to send its last message. The response would stay in memory
// for that time.
type guardedConn struct {
	net.Conn
	left   atomic.Int64 // bytes that may be read
	failed atomic.Bool
}

var errTooLong = errors.New("the handshake and the first header are too long")

// allowAll removes the limit.
func (c *guardedConn) allowAll() { c.left.Store(math.MaxInt64) }

func (c *guardedConn) Read(text []byte) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: errTooLong}
	}
	n, err := c.Conn.Read(text[:min(int64(len(text)), left)])
	c.left.Add(-int64(n))
	return n, err
}

func (c *guardedConn) Write(text []byte) (int, error) {
	if c.failed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(text)
	if err != nil {
		c.failed.Store(true)
	}
	return n, err
}
