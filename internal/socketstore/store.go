// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package socketstore keeps the listening socket of a server open while the server
// restarts. One process, the store, holds a copy of the socket; the server in
// another process listens on it. If the server is killed, connections wait in the
// backlog of the socket until the next server takes the socket over; none is
// refused. If no server comes in time, the store closes the socket: a connection
// is then refused at once, and no longer waits in vain. It is what systemd calls a
// file descriptor store, for the containers of a pod.
//
// Both sides communicate over a unix socket, in messages of one byte. The store
// sends the first message, with the descriptor of the stored socket if it has one.
// After that, each message of the server carries a descriptor to store, or none to
// store none, and the store acknowledges it with a message.
package socketstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// answerTimeout limits how long one side waits for the other to send or to read a
// message.
const answerTimeout = 5 * time.Second

// serverTimeout is how long the store keeps the socket while no server is
// connected. The kubelet starts a crashed container again at once, which takes a
// second or two. If the container crashes again, it waits 10 seconds, then 20 and
// so on. An API server waits 5 seconds for a review by default, so a connection
// that arrives after this time would most likely wait for nothing.
const serverTimeout = 5 * time.Second

// store holds one listening socket, or none.
type store struct {
	// socket is a plain descriptor: an os.File would wake this process for each
	// connection that arrives.
	socket        int
	serverTimeout time.Duration
	log           logr.Logger
}

// none means no descriptor.
const none = -1

// Serve runs the store. It holds at most one listening socket, and sends it to each
// client that connects to the unix socket at path. Serve replaces an existing
// unix socket there; only the user of this process may connect. It disconnects
// clients that violate the protocol.
//
// Clients are served one at a time, in the order in which they connect: a socket
// that one client sent is stored before the next client is served. If no client
// connects for a few seconds, Serve closes the listening socket.
//
// When ctx is done, Serve closes all descriptors and returns nil.
func Serve(ctx context.Context, path string, log logr.Logger) error {
	s := &store{socket: none, serverTimeout: serverTimeout, log: log}
	return s.run(ctx, path)
}

func (s *store) run(ctx context.Context, path string) error {
	listener, err := listenUnix(ctx, path)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	s.log.Info("Socket store started", "path", path)
	defer func() { s.replace(none) }()
	for {
		conn, err := s.accept(listener)
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept on %s: %w", path, err)
		}
		if err := s.serve(ctx, conn); err != nil && ctx.Err() == nil {
			s.log.Error(err, "Closed client connection after protocol error")
		}
	}
}

// accept waits for a client. If none comes in time, it closes the stored socket and
// waits on.
func (s *store) accept(listener *net.UnixListener) (*net.UnixConn, error) {
	for {
		deadline := time.Time{}
		if s.socket != none {
			deadline = time.Now().Add(s.serverTimeout)
		}
		if err := listener.SetDeadline(deadline); err != nil {
			return nil, err
		}
		conn, err := listener.AcceptUnix()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return conn, err
		}
		s.replace(none)
		s.log.Info("Closed the stored socket, no server has come back", "waited", s.serverTimeout.String())
	}
}

// listenUnix removes the socket that an earlier store left at path.
func listenUnix(ctx context.Context, path string) (*net.UnixListener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("got a file of type %s, want a socket or no file", info.Mode().Type())
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener.(*net.UnixListener), nil
}

// serve serves one client until it disconnects or violates the protocol, or ctx is
// done.
func (s *store) serve(ctx context.Context, conn *net.UnixConn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := s.answer(conn, s.socket); err != nil {
		return err
	}
	s.log.Info("Client connected", "socketSent", s.socket != none)
	for {
		socket, err := receive(conn)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			s.log.Info("Client disconnected", "socketStored", s.socket != none)
			return nil
		}
		if err != nil {
			return err
		}
		if socket != none {
			if err := checkListening(socket); err != nil {
				closeSocket(socket)
				return err
			}
		}
		s.replace(socket)
		s.log.Info("Socket replaced", "socketStored", s.socket != none)
		if err := s.answer(conn, none); err != nil {
			return err
		}
	}
}

// answer sends a message. It does not wait long for a client that does not read:
// the next client may be waiting.
func (s *store) answer(conn *net.UnixConn, socket int) error {
	if err := conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	return send(conn, socket)
}

func (s *store) replace(socket int) {
	closeSocket(s.socket)
	s.socket = socket
}
