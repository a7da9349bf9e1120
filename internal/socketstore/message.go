// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package socketstore

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// mark is the byte of a message: descriptors can only be sent with data.
const mark = 'L'

// send sends a message, with a copy of socket unless it is none.
func send(conn *net.UnixConn, socket int) error {
	var rights []byte
	if socket != none {
		rights = syscall.UnixRights(socket)
	}
	if _, _, err := conn.WriteMsgUnix([]byte{mark}, rights, nil); err != nil {
		return fmt.Errorf("send a message: %w", err)
	}
	return nil
}

// receive reads one message and returns its descriptor, or none. The descriptor is
// closed on exec; the caller must close it.
func receive(conn *net.UnixConn) (socket int, err error) {
	message := make([]byte, 1)
	// There is space for more descriptors than allowed, to detect and close them.
	control := make([]byte, syscall.CmsgSpace(8*4))
	n, controlled, flags, _, err := conn.ReadMsgUnix(message, control)
	// Descriptors are closed below even if there was an error.
	sockets, malformed := parseRights(control[:controlled])
	switch {
	case err != nil:
		err = fmt.Errorf("receive a message: %w", err)
	case malformed != nil:
		err = fmt.Errorf("parse the descriptors of a message: %w", malformed)
	case n != 1 || message[0] != mark:
		err = fmt.Errorf("got message %q, want %q", message[:n], mark)
	case flags&syscall.MSG_CTRUNC != 0 || len(sockets) > 1:
		err = errors.New("got a message with several descriptors, want at most one")
	case len(sockets) == 1:
		return sockets[0], nil
	}
	for _, socket := range sockets {
		closeSocket(socket)
	}
	return none, err
}

// parseRights returns all descriptors that it finds, even if it returns an error.
func parseRights(control []byte) ([]int, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	var sockets []int
	for i := range messages {
		got, parseErr := syscall.ParseUnixRights(&messages[i])
		sockets = append(sockets, got...)
		err = errors.Join(err, parseErr)
	}
	return sockets, err
}

// checkListening returns an error if the descriptor is not that of a listening
// socket.
func checkListening(socket int) error {
	listening, err := syscall.GetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
	if err != nil {
		return fmt.Errorf("got a descriptor that is not a socket: %w", err)
	}
	if listening == 0 {
		return errors.New("got a socket that does not listen")
	}
	return nil
}

// closeSocket does nothing for none.
func closeSocket(socket int) {
	if socket != none {
		_ = syscall.Close(socket)
	}
}
