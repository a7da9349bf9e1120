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
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// patience is longer than anything here takes.
const patience = time.Minute

// socketPath is short: a unix socket's path is at most about 100 bytes long.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "store") //nolint:usetesting // t.TempDir is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// startStore runs a store. stop ends it and waits until it has ended.
func startStore(t *testing.T, path string) (stop func()) {
	t.Helper()
	return startStoreWith(t, path, patience)
}

func startStoreWith(t *testing.T, path string, serverTimeout time.Duration) (stop func()) {
	t.Helper()
	s := &store{socket: none, serverTimeout: serverTimeout, log: logr.Discard()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx, path) }()
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			t.Errorf("the store ended with %v, want no error", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// server listens on a stored socket.
type server struct {
	net.Listener
	cancel context.CancelFunc
	logged chan string
}

// startServer waits for a store as Listen does, and reconnects faster.
func startServer(t *testing.T, path, address string, startTimeout time.Duration) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{cancel: cancel, logged: make(chan string, 1000)}
	log := funcr.New(func(_, args string) { s.logged <- args }, funcr.Options{})
	c := client{path: path, log: log, startTimeout: startTimeout, retryInterval: 10 * time.Millisecond}
	listener, err := c.listen(ctx, "tcp", address)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	s.Listener = listener
	t.Cleanup(s.die)
	return s
}

// die closes all descriptors at once, as a kill does.
func (s *server) die() {
	_ = s.Close()
	s.cancel()
}

func (s *server) awaitLog(t *testing.T, want string) {
	t.Helper()
	for {
		select {
		case got := <-s.logged:
			if strings.Contains(got, want) {
				return
			}
		case <-time.After(patience):
			t.Fatalf("%q was not logged", want)
		}
	}
}

// answer accepts one connection and writes text to it.
func (s *server) answer(t *testing.T, text string) {
	t.Helper()
	if err := s.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	conn, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, text)
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
}

// freeAddress returns an address that is not in use.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener := localListener(t)
	defer listener.Close()
	return listener.Addr().String()
}

func localListener(t *testing.T) *net.TCPListener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.(*net.TCPListener)
}

func dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func wantRefused(t *testing.T, address string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to %s: got %v, want it refused", address, err)
	}
}

func wantOpen(t *testing.T, address string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("connect to %s: got %v, want a connection", address, err)
	}
	_ = conn.Close()
}

func wantRead(t *testing.T, conn io.Reader, want string) {
	t.Helper()
	if got, err := io.ReadAll(conn); string(got) != want || err != nil {
		t.Errorf("got %q and %v, want %q", got, err, want)
	}
}

// wantTakenOver kills a server. The next one must answer a connection that arrived
// in between.
func wantTakenOver(t *testing.T, previous *server, path, address string) {
	t.Helper()
	previous.die()
	waiting := dial(t, "tcp", address)
	next := startServer(t, path, address, patience)
	next.answer(t, "next")
	wantRead(t, waiting, "next")
}

// rawClient connects without Listen and reads the first message of the store.
func rawClient(t *testing.T, path string) (conn *net.UnixConn, socket int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		if err != nil && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conn = c.(*net.UnixConn)
		if err := conn.SetDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		if socket, err = receive(conn); err != nil {
			t.Fatal(err)
		}
		return conn, socket
	}
}

// descriptor returns the descriptor of a file, which is closed with the test.
func descriptor(t *testing.T, file func() (*os.File, error)) int {
	t.Helper()
	f, err := file()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

func portOf(t *testing.T, socket int) int {
	t.Helper()
	address, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	inet, ok := address.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("got address %v, want an IPv4 address", address)
	}
	return inet.Port
}

func TestConnectionsWaitForTheNextServer(t *testing.T) {
	t.Parallel()
	path, address := socketPath(t), freeAddress(t)
	startStore(t, path)
	previous := startServer(t, path, address, patience)
	conn := dial(t, "tcp", address)
	previous.answer(t, "previous")
	wantRead(t, conn, "previous")
	for round := range 3 {
		previous.die()
		waiting := []net.Conn{dial(t, "tcp", address), dial(t, "tcp", address)}
		next := startServer(t, path, address, patience)
		for _, conn := range waiting {
			text := fmt.Sprint("next ", round)
			next.answer(t, text)
			wantRead(t, conn, text)
		}
		previous = next
	}
}

func TestAStoreThatRestartsGetsACopy(t *testing.T) {
	t.Parallel()
	path, address := socketPath(t), freeAddress(t)
	stop := startStore(t, path)
	previous := startServer(t, path, address, patience)
	for range 2 {
		stop()
		previous.awaitLog(t, "Lost the connection to the socket store")
		stop = startStore(t, path)
		previous.awaitLog(t, "Socket stored")
	}
	wantTakenOver(t, previous, path, address)
}

func TestAServerListensWithoutAStoreAndKeepsTrying(t *testing.T) {
	t.Parallel()
	path, address := socketPath(t), freeAddress(t)
	previous := startServer(t, path, address, 50*time.Millisecond)
	previous.awaitLog(t, "Socket store not reachable, opening a new socket")
	conn := dial(t, "tcp", address)
	previous.answer(t, "alone")
	wantRead(t, conn, "alone")
	startStore(t, path)
	previous.awaitLog(t, "Socket stored")
	wantTakenOver(t, previous, path, address)
}

func TestASocketOfAnotherPortIsReplaced(t *testing.T) {
	t.Parallel()
	path, address, other := socketPath(t), freeAddress(t), freeAddress(t)
	startStore(t, path)
	startServer(t, path, address, patience).die()
	dial(t, "tcp", address)
	next := startServer(t, path, other, patience)
	wantRefused(t, address)
	conn := dial(t, "tcp", other)
	next.answer(t, "next")
	wantRead(t, conn, "next")
}

// A webhook that was taken over could leave such a socket behind: its successor
// would be ready, and no API server could reach it.
func TestASocketOfAnotherAddressIsReplaced(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		stored, wanted string
		adopted        bool
	}{
		"loopback, but all interfaces are wanted":  {"127.0.0.1", "", false},
		"all interfaces, but loopback is wanted":   {"", "127.0.0.1", false},
		"another address of the same interface":    {"127.0.0.1", "127.0.0.2", false},
		"all interfaces, as wanted":                {"", "", true},
		"all interfaces, which 0.0.0.0 also means": {"0.0.0.0", "", true},
		"one address, as wanted":                   {"127.0.0.1", "127.0.0.1", true},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // they share the port
			path := socketPath(t)
			startStore(t, path)
			startServer(t, path, net.JoinHostPort(test.stored, port), patience).die()
			next := startServer(t, path, net.JoinHostPort(test.wanted, port), patience)
			defer next.die()
			if test.adopted {
				next.awaitLog(t, "Listening on the stored socket")
			} else {
				next.awaitLog(t, "Stored socket has another address")
			}
			got, wanted := next.Addr().(*net.TCPAddr).IP, net.ParseIP(test.wanted)
			if got.IsUnspecified() != (wanted == nil) || wanted != nil && !got.Equal(wanted) {
				t.Errorf("listens on %s, want %q", got, test.wanted)
			}
			// The store holds the new socket.
			wantTakenOver(t, next, path, next.Addr().String())
		})
	}
}

func TestTheStoreClosesASocketThatNoServerComesBackFor(t *testing.T) {
	t.Parallel()
	path, address := socketPath(t), freeAddress(t)
	startStoreWith(t, path, 50*time.Millisecond)
	previous := startServer(t, path, address, patience)
	time.Sleep(200 * time.Millisecond) // a connected server has all the time it needs
	wantOpen(t, address)
	previous.die()
	deadline := time.Now().Add(patience)
	for {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		// A connection that was waiting when the socket was closed is reset.
		if err != nil && !errors.Is(err, syscall.ECONNRESET) || time.Now().After(deadline) {
			t.Fatalf("got %v, want that connections are refused", err)
		}
		if err == nil {
			_ = conn.Close()
		}
		time.Sleep(time.Millisecond)
	}
	// It stores the socket of a server that comes later.
	next := startServer(t, path, address, patience)
	wantTakenOver(t, next, path, address)
}

func TestTheStoreKeepsTheSocketLongerThanARestartTakes(t *testing.T) {
	t.Parallel()
	const restart, backoff = 3 * time.Second, 10 * time.Second // of the kubelet
	if serverTimeout <= restart || serverTimeout >= backoff {
		t.Errorf("got %s, want more than %s and less than %s", serverTimeout, restart, backoff)
	}
}

func TestAServerThatClosesItsListenerKeepsNoCopy(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"its own socket": true, "a stored socket": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, address := socketPath(t), freeAddress(t)
			stop := startStore(t, path)
			server := startServer(t, path, address, patience)
			if !first {
				server.die()
				server = startServer(t, path, address, patience)
			}
			stop()
			dial(t, "tcp", address)
			if err := server.Close(); err != nil { // the process continues
				t.Fatal(err)
			}
			wantRefused(t, address)
			startStore(t, path)
			_, socket := rawClient(t, path)
			if socket != none {
				t.Errorf("got a socket of port %d, want none", portOf(t, socket))
			}
		})
	}
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	startStore(t, path)
	taken := localListener(t).Addr().String()
	if _, err := Listen(t.Context(), path, "tcp", taken, logr.Discard()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want that the address is in use", err)
	}
	// It disconnected from the store, which serves one client at a time.
	if _, socket := rawClient(t, path); socket != none {
		t.Error("got a socket, want none")
	}
}

// malformed are clients that violate the protocol.
var malformed = map[string]func(t *testing.T, conn *net.UnixConn){
	"another byte": func(t *testing.T, conn *net.UnixConn) {
		socket := descriptor(t, localListener(t).File)
		write(t, conn, "X", syscall.UnixRights(socket))
	},
	"a lot of text": func(t *testing.T, conn *net.UnixConn) { write(t, conn, strings.Repeat("GET / HTTP/1.1\r\n", 100), nil) },
	"two descriptors": func(t *testing.T, conn *net.UnixConn) {
		socket := descriptor(t, localListener(t).File)
		write(t, conn, "L", syscall.UnixRights(socket, socket))
	},
	"more descriptors than are read": func(t *testing.T, conn *net.UnixConn) {
		socket := descriptor(t, localListener(t).File)
		sockets := make([]int, 100)
		for i := range sockets {
			sockets[i] = socket
		}
		write(t, conn, "L", syscall.UnixRights(sockets...))
	},
	"a file": func(t *testing.T, conn *net.UnixConn) {
		file := descriptor(t, func() (*os.File, error) { return os.Open(os.DevNull) })
		write(t, conn, "L", syscall.UnixRights(file))
	},
	"a socket that does not listen": func(t *testing.T, conn *net.UnixConn) {
		socket := descriptor(t, dial(t, "tcp", localListener(t).Addr().String()).(*net.TCPConn).File)
		write(t, conn, "L", syscall.UnixRights(socket))
	},
}

func write(t *testing.T, conn *net.UnixConn, text string, rights []byte) {
	t.Helper()
	if _, _, err := conn.WriteMsgUnix([]byte(text), rights, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAClientThatViolatesTheProtocolIsDisconnected(t *testing.T) {
	t.Parallel()
	for name, misbehave := range malformed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, address := socketPath(t), freeAddress(t)
			startStore(t, path)
			startServer(t, path, address, patience).die()
			conn, socket := rawClient(t, path)
			closeSocket(socket)
			misbehave(t, conn)
			// If the client sent more than was read, the connection is reset.
			if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %d bytes and %v, want the connection closed", n, err)
			}
			waiting := dial(t, "tcp", address)
			next := startServer(t, path, address, patience)
			next.answer(t, "next")
			wantRead(t, waiting, "next")
		})
	}
}

func TestASocketIsStoredBeforeTheNextClientIsServed(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	startStore(t, path)
	for range 100 {
		listener := localListener(t)
		port := listener.Addr().(*net.TCPAddr).Port
		previous, socket := rawClient(t, path)
		closeSocket(socket)
		later := dial(t, "unix", path).(*net.UnixConn) // it is already waiting
		write(t, previous, "L", syscall.UnixRights(descriptor(t, listener.File)))
		_ = previous.Close()
		socket, err := receive(later)
		if err != nil || socket == none {
			t.Fatalf("got descriptor %d and %v, want one", socket, err)
		}
		if got := portOf(t, socket); got != port {
			t.Fatalf("got the socket of port %d, want the last one that was stored, %d", got, port)
		}
		closeSocket(socket)
		_ = later.Close()
	}
}

func TestTheStoreReplacesItsSocketWithOneForItsOwnUser(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	stale, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = stale.Close()
	startStore(t, path)
	rawClient(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != os.ModeSocket|0o600 {
		t.Errorf("got mode %v, want a socket and 0600", got)
	}
}

func TestTheStoreDoesNotRemoveOtherFiles(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), path, logr.Discard()); err == nil || !strings.Contains(err.Error(), "want a socket or no file") {
		t.Errorf("got %v, want that it is not a socket", err)
	}
	if text, err := os.ReadFile(path); string(text) != "text" || err != nil {
		t.Errorf("got %q and %v, want the file unchanged", text, err)
	}
}

func TestAStoreThatEndsClosesTheSocket(t *testing.T) {
	t.Parallel()
	path, address := socketPath(t), freeAddress(t)
	stop := startStore(t, path)
	startServer(t, path, address, patience).die()
	dial(t, "tcp", address)
	stop()
	wantRefused(t, address)
}
