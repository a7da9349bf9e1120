// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package socketstore

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// The tests of this file look at all descriptors of their process. None of them is
// parallel.

// openSockets returns the descriptors of sockets, except the standard streams.
func openSockets(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var sockets []int
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		// The descriptor that read the directory is closed by now.
		if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && fd > 2 && strings.HasPrefix(target, "socket:") {
			sockets = append(sockets, fd)
		}
	}
	return sockets
}

func TestNoDescriptorLeaks(t *testing.T) {
	before := len(openSockets(t))
	t.Run("rounds", func(t *testing.T) {
		path, address, other := socketPath(t), freeAddress(t), freeAddress(t)
		stop := startStore(t, path)
		for range 5 {
			startServer(t, path, address, patience).die()
			startServer(t, path, address, patience).die()
			startServer(t, path, other, patience).die()
			for name, misbehave := range malformed {
				t.Run(name, func(t *testing.T) {
					conn, socket := rawClient(t, path)
					closeSocket(socket)
					misbehave(t, conn)
				})
			}
			// The store already has a socket, as after a lost connection.
			c := client{path: path, log: logr.Discard(), listener: localListener(t)}
			conn, err := c.restore(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			_ = c.listener.Close()
			server := startServer(t, path, other, patience)
			stop()
			server.awaitLog(t, "Lost the connection to the socket store")
			stop = startStore(t, path)
			server.awaitLog(t, "Socket stored")
			server.die()
		}
	})
	// Goroutines take some time to end.
	deadline := time.Now().Add(10 * time.Second)
	for len(openSockets(t)) > before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if got := len(openSockets(t)); got > before {
		t.Errorf("got %d sockets open, want at most %d as before", got, before)
	}
}

func TestEveryDescriptorIsClosedOnExec(t *testing.T) {
	path, address := socketPath(t), freeAddress(t)
	startStore(t, path)
	startServer(t, path, address, patience).die()
	startServer(t, path, address, patience) // on a descriptor that it received
	rawPath := socketPath(t)
	startStore(t, rawPath)
	startServer(t, rawPath, freeAddress(t), patience).die()
	_, socket := rawClient(t, rawPath)
	defer closeSocket(socket)
	sockets := openSockets(t)
	if len(sockets) < 6 {
		t.Errorf("got %d sockets, want at least 6, of two stores and their clients", len(sockets))
	}
	for _, fd := range sockets {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: got flags %x and error %v, want close-on-exec", fd, flags, errno)
		}
	}
}
