// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package onewrite has an HTTPS server hand each answer to the network in one
// piece. net/http and crypto/tls write one in pieces of 4 and of 16 KiB, and that
// the network takes each of them, and wakes the client for it, is a large part of
// what a long answer costs.
package onewrite

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
)

const (
	// minHeld is the shortest answer that is worth it: with its header, a shorter
	// one is one piece anyway.
	minHeld = 3 << 10
	// maxHeld is how much is kept back at most: what is longer goes in pieces of
	// this length.
	maxHeld = 128 << 10
)

// Use prepares a server to serve HTTPS on the listener that it returns, instead
// of the one that it was given. The server's Handler and ConnContext are set
// before; the handler writes an answer with one Write.
//
// An answer over HTTP/2 goes as it always does: while it is written, the server
// waits for the client.
func Use(server *http.Server, l net.Listener) net.Listener {
	server.Handler = handler{server.Handler}
	before := server.ConnContext
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, c)
		}
		if encrypted, ok := c.(*tls.Conn); ok {
			c = encrypted.NetConn()
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	return listener{l, &sync.Pool{New: func() any { return new([]byte) }}}
}

type connKey struct{}

type listener struct {
	net.Listener
	buffers *sync.Pool // of *[]byte, for what its connections hold
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, buffers: l.buffers}, nil
}

type handler struct{ next http.Handler }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok && r.ProtoMajor == 1 {
		w = &writer{w, c}
	}
	h.next.ServeHTTP(w, r)
}

// writer is a ResponseWriter that sends in one piece what one Write gives it.
type writer struct {
	http.ResponseWriter
	conn *conn
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter. Nobody waits for the client while its
// connection is held, so none of the two can wait for the other.
func (w *writer) Write(p []byte) (int, error) {
	if len(p) < minHeld {
		return w.ResponseWriter.Write(p)
	}
	w.conn.hold()
	n, err := w.ResponseWriter.Write(p)
	if err == nil {
		// The last few bytes would else come when the connection is held no more.
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	return n, errors.Join(err, w.conn.release())
}

// conn is a connection that can be held: then it keeps what is written.
type conn struct {
	net.Conn
	buffers *sync.Pool // the listener's
	mu      sync.Mutex
	held    *[]byte // nil while it is not
}

func (c *conn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = c.buffers.Get().(*[]byte)
}

// release sends what was kept.
func (c *conn) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.flush()
	c.buffers.Put(c.held)
	c.held = nil
	return err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return c.Conn.Write(p)
	}
	if len(*c.held)+len(p) > maxHeld {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	*c.held = append(*c.held, p...)
	return len(p), nil
}

func (c *conn) flush() error {
	if len(*c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(*c.held)
	*c.held = (*c.held)[:0]
	return err
}
