// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
)

const limit = 4

// New returns a server with the limit, which keeps requests for /wait until
// the test ends.
func New(t *testing.T, start func(*httptest.Server)) *httptest.Server {
	t.Helper()
	done := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-done
		}
	}))
	start(server)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(done) })
	return server
}

func plain(s *httptest.Server) {
	httpserver.Use(s.Config, limit)
	s.Start()
}

func encrypted(s *httptest.Server) {
	httpserver.Use(s.Config, limit)
	s.StartTLS()
}

type client struct {
	t    *testing.T
	conn net.Conn
}

func connect(t *testing.T, server *httptest.Server) client {
	t.Helper()
	return connectFrom(t, server, "127.0.0.1")
}

func connectFrom(t *testing.T, server *httptest.Server, address string) client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	time.Sleep(20 * time.Millisecond) // the server has accepted it
	return client{t, conn}
}

func (c client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
}

// get sends a request and reads the response.
func (c client) get() error {
	c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(c.conn), nil)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// closed reports whether the server has closed the connection.
func (c client) closed() bool {
	_ = c.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, err := c.conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestTheConnectionThatIsUnchangedForTheLongestTimeIsClosed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		begin []func(client) // what the clients do, in this order
		want  int            // the client that is closed by one more
	}{
		"of silent ones the first":                               {[]func(client){silent, silent, silent, silent}, 0},
		"a silent one rather than an older one that was used":    {[]func(client){idle, idle, silent, silent}, 2},
		"one that was used if only few are silent":               {[]func(client){silent, idle, waiting, idle}, 1},
		"an idle one rather than a request that has just begun":  {[]func(client){idle, waiting, waiting, waiting}, 0},
		"a request that takes long rather than one that is idle": {[]func(client){waiting, idle, idle, idle}, 0},
		"a header in drops like a silent one":                    {[]func(client){drops, silent, idle, idle}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := New(t, plain)
			var clients []client
			for _, begin := range test.begin {
				c := connect(t, server)
				begin(c)
				clients = append(clients, c)
			}
			last := connect(t, server)
			if err := last.get(); err != nil {
				t.Errorf("got error %v for the newest connection, want a response", err)
			}
			for i, c := range clients {
				if got := c.closed(); got != (i == test.want) {
					t.Errorf("connection %d: got closed %t, want that of %d", i, got, test.want)
				}
			}
		})
	}
}

func silent(client) {}

func idle(c client) {
	if err := c.get(); err != nil {
		c.t.Fatal(err)
	}
}

func waiting(c client) { c.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n") }

func drops(c client) { c.send("G") }

// A connection that serves requests stays, however many others come and go.
func TestAConnectionInUseStays(t *testing.T) {
	t.Parallel()
	server := New(t, plain)
	used := connect(t, server)
	for i := range 5 * limit {
		if err := used.get(); err != nil {
			t.Fatalf("after %d other connections: %v", i, err)
		}
		connect(t, server)
	}
	if err := used.get(); err != nil {
		t.Error(err)
	}
}

func TestConnectionsThatEndMakeRoom(t *testing.T) {
	t.Parallel()
	server := New(t, plain)
	first := connect(t, server)
	for range 5 * limit {
		other := connect(t, server)
		if err := other.conn.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if first.closed() {
		t.Error("the first connection was closed, want it open: the others had ended")
	}
}

// API servers keep their connections while others open very many.
func TestAConnectionThatWasUsedStaysInAFlood(t *testing.T) {
	t.Parallel()
	server := New(t, plain)
	used := connect(t, server)
	idle(used)
	for range 10 * limit {
		connect(t, server)
	}
	if err := used.get(); err != nil {
		t.Errorf("got error %v on a connection that was used before the flood, want a response", err)
	}
}

// A kubelet's probe is a new connection each time, as fresh as the connections of a flood.
func TestAnotherAddressHasItsPlaceInAFlood(t *testing.T) {
	t.Parallel()
	for name, flood := range map[string]func(client){"of silent connections": silent, "of connections with a request": waiting} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := New(t, plain)
			probe := connect(t, server)
			for range 3 * limit {
				flood(connectFrom(t, server, "127.0.0.2"))
			}
			if err := probe.get(); err != nil {
				t.Errorf("got error %v on a connection from before the flood, want a response", err)
			}
		})
	}
}

// A client that does not finish the TLS handshake, or does not read, does not
// delay the close.
func TestHTTPSConnectionsAreClosedAtOnce(t *testing.T) {
	t.Parallel()
	server := New(t, encrypted)
	var clients []client
	for range 10 * limit {
		clients = append(clients, connect(t, server))
	}
	open := 0
	for _, c := range clients {
		if !c.closed() {
			open++
		}
	}
	if open != limit {
		t.Errorf("got %d open connections, want %d", open, limit)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(fmt.Errorf("a new client: %w", err))
	}
	_ = response.Body.Close()
}
