// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package singlewrite makes an HTTPS server send each response with one write to
// the network. net/http and crypto/tls send one in pieces of 4 and 16 KiB. Each
// piece is a system call and wakes the client, which is much of the cost of a long
// response. docs/evidence/performance.md has the figures.
package singlewrite

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
)

const (
	// minHeld is the shortest response that is held back. With its header, a shorter
	// one is a single piece anyway.
	minHeld = 3 << 10
	// maxHeld is the most that is held back. A longer response is sent in pieces of
	// at most this length.
	maxHeld = 128 << 10
)

// Use prepares an HTTP/1.1 server. It wraps the server's Handler, and ConnContext
// if set, so both must be set before. The server must serve the listener that Use
// returns instead of l, and the handler must write each response with one Write.
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
	buffers *sync.Pool // of *[]byte, for its connections
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

// writer is a ResponseWriter that sends the data of each Write in one piece.
type writer struct {
	http.ResponseWriter
	conn *conn
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter. While the connection is held, writes only
// fill a buffer and never wait for the client.
func (w *writer) Write(p []byte) (int, error) {
	if len(p) < minHeld {
		return w.ResponseWriter.Write(p)
	}
	w.conn.hold()
	n, err := w.ResponseWriter.Write(p)
	if err == nil {
		// net/http would otherwise write the last bytes after the release.
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	return n, errors.Join(err, w.conn.release())
}

// conn is a connection that can hold back what is written to it.
type conn struct {
	net.Conn
	buffers *sync.Pool // the listener's
	mu      sync.Mutex
	held    *[]byte // nil if nothing is held back
}

func (c *conn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = c.buffers.Get().(*[]byte)
}

// release sends what was held back.
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
