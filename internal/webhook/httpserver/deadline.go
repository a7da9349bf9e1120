// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"sync/atomic"
)

// finalListener accepts connections that are not written to after a write has failed.
//
// When a client does not read until the write deadline, net/http closes the connection,
// and crypto/tls then waits 5 seconds more for space for its last message. The response
// would stay in memory for that time.
type finalListener struct{ net.Listener }

func (l finalListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &finalConn{Conn: conn}, nil
}

type finalConn struct {
	net.Conn
	failed atomic.Bool
}

func (c *finalConn) Write(text []byte) (int, error) {
	if c.failed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(text)
	if err != nil {
		c.failed.Store(true)
	}
	return n, err
}
