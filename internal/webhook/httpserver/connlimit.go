// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"cmp"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// Use limits the server to this many open connections. It sets the server's
// ConnState.
//
// If there is one too many, an old connection is closed: of the connections that have not
// sent a request yet, if they are more than half, or else of all. Of these, it is one of
// the address that has most of them, and the one whose state (new, idle or with a
// request) has not changed for the longest time. So a client that opens very many
// connections closes its own. The connections of an API server or a kubelet stay: they
// are few, or are used again and again.
func Use(server *http.Server, limit int) {
	l := &limiter{limit: limit, open: map[net.Conn]*connection{}}
	server.ConnState = l.changed
}

// limiter keeps the open connections.
type limiter struct {
	limit int

	mu      sync.Mutex
	open    map[net.Conn]*connection
	changes uint64 // of the states of all connections
}

// connection is an open connection.
type connection struct {
	net.Conn
	address netip.Addr
	used    bool   // it has sent a request
	changed uint64 // limiter.changes at the last change of its state
}

func (l *limiter) changed(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.open[conn]
	switch {
	case state == http.StateNew:
		c = &connection{Conn: conn, address: addressOf(conn)}
		l.open[conn] = c
	case c == nil: // it was closed
		return
	case state == http.StateClosed || state == http.StateHijacked:
		delete(l.open, conn)
		return
	default:
		c.used = true
	}
	l.changes++
	c.changed = l.changes
	if len(l.open) > l.limit {
		l.closeOne()
	}
}

func (l *limiter) closeOne() {
	candidates := slices.Collect(maps.Values(l.open))
	if fresh := slices.DeleteFunc(slices.Clone(candidates), func(c *connection) bool { return c.used }); len(fresh) > l.limit/2 {
		candidates = fresh
	}
	counts := map[netip.Addr]int{}
	for _, c := range candidates {
		counts[c.address]++
	}
	first := slices.MinFunc(candidates, func(a, b *connection) int {
		if most := cmp.Compare(counts[b.address], counts[a.address]); most != 0 || a.used == b.used {
			return cmp.Or(most, cmp.Compare(a.changed, b.changed))
		}
		if a.used { // in place of a fresh connection, which may be a probe's
			return -1
		}
		return 1
	})
	delete(l.open, first.Conn)
	conn := first.Conn
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn() // without a farewell, which could wait for the client
	}
	_ = conn.Close()
}

// addressOf returns the address of the client. Clients without an IP address count as
// one.
func addressOf(conn net.Conn) netip.Addr {
	address, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return address.AddrPort().Addr().Unmap()
}
