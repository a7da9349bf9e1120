// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memnet is a network in memory for tests in a bubble of testing/synctest: its
// connections block in a way that the bubble notices, and their deadlines follow the
// clock of the bubble. A client connects from any address, and a peer that does not read
// makes its writer wait, as with TCP.
//
// Connections carry the servers and clients of net/http and crypto/tls. The goroutines of
// an http.Server end some time after it is closed; sleep for a minute of the bubble's
// time before the bubble ends.
//
// Unlike with TCP, a write fails as soon as the peer has closed the connection, and never
// makes the peer lose what it has not read. So use an httptest.ResponseRecorder to test a
// server that responds before it has read the request.
package memnet

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// backlog is the number of connections that wait to be accepted.
const backlog = 128

// Listener is a net.Listener. Make it with Listen.
type Listener struct {
	buffer   int
	waiting  chan *Conn
	closed   chan struct{}
	once     sync.Once
	lastPort atomic.Uint32
}

// Listen returns a listener. Its connections hold this many bytes in each direction that
// the peer has not read yet.
func Listen(buffer int) *Listener {
	return &Listener{buffer: buffer, waiting: make(chan *Conn, backlog), closed: make(chan struct{})}
}

// serverAddress is an address for documentation.
var serverAddress = net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}

// Addr returns an address that is the same for all listeners.
func (l *Listener) Addr() net.Addr { return &serverAddress }

// Close implements net.Listener. Connections that were not accepted are closed.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	for {
		select {
		case conn := <-l.waiting:
			_ = conn.Close()
		default:
			return nil
		}
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.waiting:
		return conn, nil
	case <-l.closed:
		return nil, l.opError("accept", net.ErrClosed)
	}
}

// Dial connects a client that has this IP address. As with TCP, it does not wait until
// the listener accepts the connection, unless very many others wait.
func (l *Listener) Dial(ctx context.Context, from string) (*Conn, error) {
	ip, err := netip.ParseAddr(from)
	if err != nil {
		return nil, l.opError("dial", err)
	}
	port := uint16(1024 + l.lastPort.Add(1)%(1<<16-1024))
	address := net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, port))
	up, down := newStream(l.buffer), newStream(l.buffer)
	select {
	case <-l.closed:
		return nil, l.opError("dial", syscall.ECONNREFUSED)
	default:
	}
	select {
	case l.waiting <- &Conn{in: up, out: down, local: &serverAddress, remote: address}:
		return &Conn{in: down, out: up, local: address, remote: &serverAddress}, nil
	case <-l.closed:
		return nil, l.opError("dial", syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, l.opError("dial", ctx.Err())
	}
}

// DialContext returns a function for the DialContext of an http.Transport. The function always
// connects to the listener, from this IP address, whatever the address of the request.
func (l *Listener) DialContext(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx, from) }
}

func (l *Listener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: &serverAddress, Err: err}
}

// Conn is one end of a connection.
type Conn struct {
	in, out       *stream
	local, remote *net.TCPAddr
}

// LocalAddr returns a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.opError("read", err)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.opError("write", err)
}

// Close ends both directions. The peer still reads what was written before.
func (c *Conn) Close() error {
	c.in.change(func() { c.in.unread, c.in.readerClosed = bytes.Buffer{}, true })
	return c.CloseWrite()
}

// CloseWrite ends the direction to the peer.
func (c *Conn) CloseWrite() error {
	c.out.change(func() { c.out.writerClosed = true })
	return nil
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // it must not be wrapped
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// stream is one direction of a connection.
type stream struct {
	mu                         sync.Mutex
	changed                    sync.Cond // of any field
	size                       int
	unread                     bytes.Buffer
	readerClosed, writerClosed bool
	readBy, writeBy            *deadline
}

// deadline is replaced when it is set again.
type deadline struct{ passed bool }

func newStream(size int) *stream {
	s := &stream{size: size, readBy: new(deadline), writeBy: new(deadline)}
	s.changed.L = &s.mu
	return s
}

func (s *stream) change(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
	s.changed.Broadcast()
}

func (s *stream) setDeadline(by **deadline, t time.Time) {
	s.change(func() {
		next := &deadline{passed: !t.IsZero() && time.Until(t) <= 0}
		*by = next
		if !t.IsZero() && !next.passed {
			time.AfterFunc(time.Until(t), func() { s.change(func() { next.passed = true }) })
		}
	})
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerClosed:
			return 0, net.ErrClosed
		case s.readBy.passed:
			return 0, os.ErrDeadlineExceeded
		case s.unread.Len() > 0:
			s.changed.Broadcast()
			return s.unread.Read(p)
		case s.writerClosed:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch room := s.size - s.unread.Len(); {
		case s.writerClosed:
			return n, net.ErrClosed
		case s.writeBy.passed:
			return n, os.ErrDeadlineExceeded
		case s.readerClosed:
			return n, syscall.EPIPE
		case n == len(p):
			return n, nil
		case room > 0:
			next := p[n:min(n+room, len(p))]
			_, _ = s.unread.Write(next)
			n += len(next)
			s.changed.Broadcast()
		default:
			s.changed.Wait()
		}
	}
}

// Dial returns a connection from an address to the listener. It is closed when the test ends.
func Dial(t testing.TB, listener *Listener, from string) *Conn {
	t.Helper()
	conn, err := listener.Dial(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Serve runs the server in a bubble until the test ends, and returns its listener. buffer is the
// parameter of Listen.
func Serve(t testing.TB, server *http.Server, buffer int) *Listener {
	t.Helper()
	listener := Listen(buffer)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		time.Sleep(time.Minute) // its goroutines end
	})
	return listener
}
