// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Use limits the server to this many open connections. It sets the server's
// ConnState.
//
// If there is one too many, an old connection is closed: of the connections that have not
// sent a request yet, if they are more than half, or else of those that have. Of
// these, it is the one whose state (new, idle or with a request) has not changed for
// the longest time. So a client that opens very many connections mostly closes its
// own: an API server uses its connections again and again, and a request takes
// milliseconds.
func Use(server *http.Server, limit int) {
	l := &limiter{limit: limit, open: map[net.Conn]place{}}
	server.ConnState = l.changed
}

// limiter keeps the open connections. Its lists are ordered by the last change of
// the connection's state, the longest unchanged first.
type limiter struct {
	limit int

	mu          sync.Mutex
	open        map[net.Conn]place
	fresh, used list.List // of net.Conn; fresh have not sent a request yet
}

// place is where a connection is.
type place struct {
	list    *list.List
	element *list.Element
}

func (l *limiter) changed(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, known := l.open[conn]; known {
		at.list.Remove(at.element)
		delete(l.open, conn)
	} else if state != http.StateNew {
		return // it was closed
	}
	switch state {
	case http.StateClosed, http.StateHijacked:
		return
	case http.StateNew:
		l.open[conn] = place{&l.fresh, l.fresh.PushBack(conn)}
	default:
		l.open[conn] = place{&l.used, l.used.PushBack(conn)}
	}
	if len(l.open) <= l.limit {
		return
	}
	if l.fresh.Len() > l.limit/2 {
		l.closeFirst(&l.fresh)
	} else {
		l.closeFirst(&l.used)
	}
}

func (l *limiter) closeFirst(from *list.List) {
	conn := from.Remove(from.Front()).(net.Conn)
	delete(l.open, conn)
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn() // without a farewell, which could wait for the client
	}
	_ = conn.Close()
}
