// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package socketstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
)

const (
	// startTimeout is how long Listen waits for a store. The containers of a pod
	// start one after another, within a second or two.
	startTimeout = 5 * time.Second
	// startInterval is between two of its tries: connections may be waiting.
	startInterval = 20 * time.Millisecond
	// retryInterval is between two tries to reach a store that went away.
	retryInterval = time.Second
)

// Listen gives the TCP socket that the store at path holds, if it listens on the
// port of address, and otherwise listens on address itself and has the store
// hold a copy. Until ctx ends it sees to it that the store has one, also when
// that is started anew. It keeps no copy itself: to close the listener closes
// all that this process has.
//
// Where there is no store within five seconds it listens without, says so in the
// log, and goes on trying.
func Listen(ctx context.Context, path, network, address string, log logr.Logger) (net.Listener, error) {
	c := client{path: path, log: log, startTimeout: startTimeout, retryInterval: retryInterval}
	return c.listen(ctx, network, address)
}

// client is the store's other side.
type client struct {
	path                        string
	log                         logr.Logger
	startTimeout, retryInterval time.Duration
	listener                    *net.TCPListener
}

func (c *client) listen(ctx context.Context, network, address string) (net.Listener, error) {
	wanted, err := net.ResolveTCPAddr(network, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	conn, socket, err := c.await(ctx)
	if err != nil {
		c.log.Error(err, "There is no socket store yet; listening without", "path", c.path)
	}
	c.listener = c.adopt(socket, wanted.Port)
	if c.listener != nil {
		c.log.Info("Listening on the socket of the store", "address", c.listener.Addr().String())
		go c.keep(ctx, conn)
		return c.listener, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		return nil, err
	}
	c.listener = listener.(*net.TCPListener) // no other is there for a TCP address
	if conn != nil {
		if err := c.share(conn); err != nil {
			_ = conn.Close()
			conn = nil
			c.log.Error(err, "The socket is not in the store yet", "path", c.path)
		}
	}
	go c.keep(ctx, conn)
	return c.listener, nil
}

// await connects as soon as there is a store, and gives the descriptor that it
// has, or none.
func (c *client) await(ctx context.Context) (conn *net.UnixConn, socket int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.startTimeout)
	defer cancel()
	for {
		conn, socket, err = c.connect(ctx)
		if err == nil || !sleep(ctx, startInterval) {
			return conn, socket, err
		}
	}
}

// connect connects and reads what the store has.
func (c *client) connect(ctx context.Context) (conn *net.UnixConn, socket int, err error) {
	dialed, err := new(net.Dialer).DialContext(ctx, "unix", c.path)
	if err != nil {
		return nil, none, err
	}
	conn = dialed.(*net.UnixConn)
	if err = conn.SetDeadline(time.Now().Add(answerTimeout)); err == nil {
		socket, err = receive(conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, none, err
	}
	return conn, socket, nil
}

// adopt makes a listener of a descriptor, if it is the one that is wanted. The
// descriptor is closed in any case.
func (c *client) adopt(socket, port int) *net.TCPListener {
	if socket == none {
		return nil
	}
	file := os.NewFile(uintptr(socket), "stored socket")
	defer file.Close()
	err := checkListening(socket)
	if err != nil {
		c.log.Error(err, "The stored socket is of no use; listening anew")
		return nil
	}
	copied, err := net.FileListener(file)
	if err != nil {
		c.log.Error(err, "The stored socket is of no use; listening anew")
		return nil
	}
	listener, ok := copied.(*net.TCPListener)
	if !ok || listener.Addr().(*net.TCPAddr).Port != port {
		c.log.Info("The stored socket is another one; listening anew", "got", copied.Addr().String(), "wantPort", port)
		_ = copied.Close()
		return nil
	}
	return listener
}

// share has the store hold a copy of the socket.
func (c *client) share(conn *net.UnixConn) error {
	raw, err := c.listener.SyscallConn()
	if err != nil {
		return fmt.Errorf("socket of the listener: %w", err)
	}
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = send(conn, int(fd)) }); err != nil {
		return fmt.Errorf("socket of the listener: %w", err)
	}
	if sent != nil {
		return sent
	}
	socket, err := receive(conn)
	closeSocket(socket)
	if err != nil {
		return fmt.Errorf("have the socket stored: %w", err)
	}
	return nil
}

// keep stays connected, and brings a copy to each store that there is, until ctx
// ends or the listener is closed. conn is nil where no store has one.
func (c *client) keep(ctx context.Context, conn *net.UnixConn) {
	for {
		if conn != nil {
			hold(ctx, conn)
			if ctx.Err() != nil {
				return
			}
			c.log.Info("The socket store went away; waiting for it to come back", "path", c.path)
		}
		if !sleep(ctx, c.retryInterval) {
			return
		}
		var err error
		if conn, err = c.restore(ctx); errors.Is(err, net.ErrClosed) {
			return
		}
		if conn != nil {
			c.log.Info("The socket is in the store", "path", c.path)
		}
	}
}

// restore connects and brings a copy.
func (c *client) restore(ctx context.Context) (*net.UnixConn, error) {
	conn, socket, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	closeSocket(socket)
	if err := c.share(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// hold waits until the store closes the connection, or ctx ends.
func hold(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	if conn.SetDeadline(time.Time{}) != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// The store says nothing of itself.
	_, _ = io.CopyN(io.Discard, conn, 1)
}

// sleep says whether ctx still goes on after the time.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
