// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connlimit limits how many connections a server has open. Any pod of a
// cluster may connect to the servers of lanyard-webhook, and each connection takes
// some 40 kB.
package connlimit

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
// If there is one too many, the connection that has been in its state (new, idle
// or with a request) for the longest time is closed. A client that opens
// connections to keep others out so only closes its own: a request of an API
// server takes milliseconds, and a connection that was idle is opened again.
func Use(server *http.Server, limit int) {
	l := &limiter{limit: limit, open: map[net.Conn]*list.Element{}}
	server.ConnState = l.changed
}

// limiter keeps the open connections, ordered by the last change of their state.
type limiter struct {
	limit int

	mu    sync.Mutex
	open  map[net.Conn]*list.Element
	order list.List // of net.Conn, the longest unchanged first
}

func (l *limiter) changed(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	element, known := l.open[conn]
	switch {
	case state == http.StateClosed || state == http.StateHijacked:
		if known {
			l.remove(element)
		}
	case known:
		l.order.MoveToBack(element)
	case state == http.StateNew:
		l.open[conn] = l.order.PushBack(conn)
		if len(l.open) > l.limit {
			l.remove(l.order.Front())
		}
	}
}

// remove forgets a connection and closes it.
func (l *limiter) remove(element *list.Element) {
	conn := l.order.Remove(element).(net.Conn)
	delete(l.open, conn)
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn() // without a farewell, which could wait for the client
	}
	_ = conn.Close()
}
