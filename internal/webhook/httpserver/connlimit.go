// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
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
	l := &limiter{limit: limit, open: map[net.Conn]place{}, sources: map[netip.Addr]*source{}}
	server.ConnState = l.changed
}

// limiter keeps the open connections.
type limiter struct {
	limit int

	mu      sync.Mutex
	open    map[net.Conn]place
	fresh   int // connections that have not sent a request yet
	sources map[netip.Addr]*source
}

// source has the connections of one address. Its lists are ordered by the last change
// of the connection's state, the longest unchanged first.
type source struct{ fresh, used list.List } // of net.Conn

// place is where a connection is.
type place struct {
	address netip.Addr
	list    *list.List
	element *list.Element
}

func (l *limiter) changed(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.remove(conn) && state != http.StateNew {
		return // it was closed
	}
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	l.add(conn, state)
	if len(l.open) > l.limit {
		l.closeOne()
	}
}

func (l *limiter) add(conn net.Conn, state http.ConnState) {
	address := addressOf(conn)
	from := l.sources[address]
	if from == nil {
		from = new(source)
		l.sources[address] = from
	}
	in := &from.used
	if state == http.StateNew {
		in = &from.fresh
		l.fresh++
	}
	l.open[conn] = place{address, in, in.PushBack(conn)}
}

// remove reports whether the connection was open.
func (l *limiter) remove(conn net.Conn) bool {
	at, known := l.open[conn]
	if !known {
		return false
	}
	delete(l.open, conn)
	at.list.Remove(at.element)
	from := l.sources[at.address]
	if at.list == &from.fresh {
		l.fresh--
	}
	if from.fresh.Len()+from.used.Len() == 0 {
		delete(l.sources, at.address)
	}
	return true
}

func (l *limiter) closeOne() {
	onlyFresh := l.fresh > l.limit/2
	var most int
	var in *list.List
	for _, from := range l.sources {
		n, candidates := from.fresh.Len(), &from.fresh
		if !onlyFresh {
			n += from.used.Len()
			if from.used.Len() > 0 {
				candidates = &from.used
			}
		}
		if n > most {
			most, in = n, candidates
		}
	}
	conn := in.Front().Value.(net.Conn)
	l.remove(conn)
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
