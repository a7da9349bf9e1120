// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"errors"
	"math"
	"net"
	"sync/atomic"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

// guardedListener wraps each connection in a guardedConn.
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
