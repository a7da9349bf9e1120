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
	// startTimeout is how long Listen waits for the store. The containers of a pod
	// start within a second or two of each other.
	startTimeout = 5 * time.Second
	// startInterval is the time between the first attempts to connect to the store.
	// It is short because connections may be waiting.
	startInterval = 20 * time.Millisecond
	// retryInterval is the time between later attempts.
	retryInterval = time.Second
)

// Listen returns a listener on the TCP socket that the store at path holds, if that
// socket has the given address. Otherwise it makes the store close that socket,
// opens a new one on address and sends the store a copy. Until ctx is done it sends a copy again whenever the
// store restarts. Listen keeps no copy: closing the listener closes the only
// descriptor of this process.
//
// If the store cannot be reached within five seconds, Listen opens a new socket,
// logs that, and keeps trying to reach the store.
func Listen(ctx context.Context, path, network, address string, log logr.Logger) (net.Listener, error) {
	c := client{path: path, log: log, startTimeout: startTimeout, retryInterval: retryInterval}
	return c.listen(ctx, network, address)
}

// client is the server's side of the connection to the store.
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
		c.log.Error(err, "Socket store not reachable, opening a new socket", "path", c.path)
	}
	c.listener = c.adopt(socket, wanted)
	if c.listener != nil {
		c.log.Info("Listening on the stored socket", "address", c.listener.Addr().String())
		go c.keep(ctx, conn)
		return c.listener, nil
	}
	if socket != none {
		conn = c.discard(conn)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		return nil, err
	}
	c.listener = listener.(*net.TCPListener) // always, for a TCP address
	if conn != nil {
		if err := c.share(conn); err != nil {
			_ = conn.Close()
			conn = nil
			c.log.Error(err, "Failed to store the socket, retrying", "path", c.path)
		}
	}
	go c.keep(ctx, conn)
	return c.listener, nil
}

// await connects as soon as the store runs, and returns its descriptor, or none.
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

// connect connects and reads the first message of the store.
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

// adopt returns a listener on a copy of socket, or nil if that does not listen on
// the wanted address. It always closes socket.
func (c *client) adopt(socket int, wanted *net.TCPAddr) *net.TCPListener {
	if socket == none {
		return nil
	}
	file := os.NewFile(uintptr(socket), "stored socket")
	defer file.Close()
	err := checkListening(socket)
	if err != nil {
		c.log.Error(err, "Stored socket is invalid, opening a new one")
		return nil
	}
	copied, err := net.FileListener(file)
	if err != nil {
		c.log.Error(err, "Stored socket is invalid, opening a new one")
		return nil
	}
	listener, ok := copied.(*net.TCPListener)
	if !ok || !sameAddress(listener.Addr().(*net.TCPAddr), wanted) {
		c.log.Info("Stored socket has another address, opening a new one", "address", copied.Addr().String(), "want", wanted.String())
		_ = copied.Close()
		return nil
	}
	return listener
}

// sameAddress reports whether a socket of one address can be used as one of the
// other. A socket of the same port that only listens on the loopback interface
// would pass the readiness check, and no API server could reach it.
func sameAddress(a, b *net.TCPAddr) bool {
	return a.Port == b.Port && (unspecified(a.IP) && unspecified(b.IP) || a.IP.Equal(b.IP))
}

// unspecified reports whether the IP means all interfaces. Go writes it in three
// ways: as no IP, 0.0.0.0 or ::.
func unspecified(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }

// discard makes the store close its socket, whose port a new socket may need. It
// returns nil in place of a connection that failed.
func (c *client) discard(conn *net.UnixConn) *net.UnixConn {
	if err := exchange(conn, none); err != nil {
		_ = conn.Close()
		c.log.Error(err, "Failed to make the store close its socket", "path", c.path)
		return nil
	}
	return conn
}

// share sends the store a copy of the socket, and waits until it is stored.
func (c *client) share(conn *net.UnixConn) error {
	raw, err := c.listener.SyscallConn()
	if err != nil {
		return fmt.Errorf("socket of the listener: %w", err)
	}
	var exchanged error
	if err := raw.Control(func(fd uintptr) { exchanged = exchange(conn, int(fd)) }); err != nil {
		return fmt.Errorf("socket of the listener: %w", err)
	}
	return exchanged
}

// exchange sends the store a socket, or none, and waits until the store holds it
// in place of its previous one.
func exchange(conn *net.UnixConn, socket int) error {
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if err := send(conn, socket); err != nil {
		return err
	}
	answer, err := receive(conn)
	closeSocket(answer)
	if err != nil {
		return fmt.Errorf("store the socket: %w", err)
	}
	return nil
}

// keep stays connected to the store, and sends a copy again after each time that
// the connection is lost, until ctx is done or the listener is closed. conn is nil
// if the socket is not stored yet.
func (c *client) keep(ctx context.Context, conn *net.UnixConn) {
	for {
		if conn != nil {
			hold(ctx, conn)
			if ctx.Err() != nil {
				return
			}
			c.log.Info("Lost the connection to the socket store, reconnecting", "path", c.path)
		}
		if !sleep(ctx, c.retryInterval) {
			return
		}
		var err error
		if conn, err = c.restore(ctx); errors.Is(err, net.ErrClosed) {
			return
		}
		if conn != nil {
			c.log.Info("Socket stored", "path", c.path)
		}
	}
}

// restore connects and sends a copy.
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

// hold waits until the store closes the connection, or ctx is done.
func hold(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	if conn.SetDeadline(time.Time{}) != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// The store only sends in response to a message.
	_, _ = io.CopyN(io.Discard, conn, 1)
}

// sleep waits for d. It reports false if ctx is done before.
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
