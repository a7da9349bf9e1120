// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package socketstore keeps a server's listening socket open while the server
// is not there. One process, the store, holds a copy of the socket; the server
// in another one listens through it. When the server is killed, connections
// wait in the socket's backlog, until the server that is started in its place
// takes the same socket over: none is refused. It is what systemd calls a file
// descriptor store, for the containers of a pod.
//
// They talk over a unix socket, in messages of one byte. The store begins with
// one that has the stored socket's descriptor with it, or with one that has
// none. From then on each message of the server's brings a descriptor to store,
// and the store answers it.
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

// answerTimeout is how long one side waits until the other has taken, or given,
// what is due. Neither has anything else to do.
const answerTimeout = 5 * time.Second

// store holds one listening socket, or none.
type store struct {
	// socket is a bare descriptor, since all that is done with it is to hold it:
	// an os.File would wake this process for each connection that arrives.
	socket int
	log    logr.Logger
}

// none stands for no descriptor.
const none = -1

// Serve is the store: it holds at most one listening socket, and hands it to
// whoever connects to the unix socket at path. That is made anew, for the own
// user alone. A client that sends what is not asked for is hung up on.
//
// Clients are served one at a time, in the order in which they came. So what the
// former one sent is stored before the next is told what there is.
//
// Serve returns nil after ctx has ended, with all descriptors closed.
func Serve(ctx context.Context, path string, log logr.Logger) error {
	listener, err := listenUnix(ctx, path)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	log.Info("Waiting for a server", "socket", path)
	s := &store{socket: none, log: log}
	defer func() { s.replace(none) }()
	for {
		conn, err := listener.AcceptUnix()
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
			log.Error(err, "Hung up on the server")
		}
	}
}

// listenUnix removes what an earlier store left at path.
func listenUnix(ctx context.Context, path string) (*net.UnixListener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("got a file of type %s there, want a socket or nothing", info.Mode().Type())
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

// serve serves one client until it goes away, sends what it should not, or ctx
// ends.
func (s *store) serve(ctx context.Context, conn *net.UnixConn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := s.answer(conn, s.socket); err != nil {
		return err
	}
	s.log.Info("A server is there", "socketHandedOver", s.socket != none)
	for {
		socket, err := receive(conn)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			s.log.Info("The server is gone", "socketStored", s.socket != none)
			return nil
		}
		if err != nil {
			return err
		}
		if err := checkListening(socket); err != nil {
			closeSocket(socket)
			return err
		}
		s.replace(socket)
		s.log.Info("Socket stored")
		if err := s.answer(conn, none); err != nil {
			return err
		}
	}
}

// answer does not wait for a client that reads nothing: the next one may be
// waiting.
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
