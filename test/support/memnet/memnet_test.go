// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package memnet_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// buffer is the size of the buffers of connect.
const buffer = 10

// connect returns both ends of a connection.
func connect(t *testing.T) (client *memnet.Conn, server net.Conn) {
	t.Helper()
	listener := memnet.Listen(buffer)
	client, err := listener.Dial(t.Context(), "10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	server, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestBytesArriveInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := connect(t)
		want := bytes.Repeat([]byte("0123456789abc"), 100)
		go func() {
			if n, err := client.Write(want); n != len(want) || err != nil {
				t.Errorf("got %d bytes written and error %v, want all %d", n, err, len(want))
			}
			_ = client.CloseWrite()
		}()
		got, err := io.ReadAll(server)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %q and error %v, want %q", got, err, want)
		}
		if _, err := io.WriteString(server, "response"); err != nil {
			t.Errorf("got error %v for a response after the client's last byte, want none", err)
		}
		_ = server.Close()
		if got, err := io.ReadAll(client); err != nil || string(got) != "response" {
			t.Errorf("got %q and error %v, want the response", got, err)
		}
	})
}

func TestInterruptedReadsAndWrites(t *testing.T) {
	t.Parallel()
	type conns struct {
		client *memnet.Conn
		server net.Conn
	}
	for name, test := range map[string]struct {
		end         func(conns)
		read, write error // of the client
	}{
		"the deadline":                    {func(c conns) { _ = c.client.SetDeadline(time.Now()) }, os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
		"a deadline before the last one":  {func(c conns) { _ = c.client.SetDeadline(time.Unix(0, 1)) }, os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
		"the client closes":               {func(c conns) { _ = c.client.Close() }, net.ErrClosed, net.ErrClosed},
		"the server closes":               {func(c conns) { _ = c.server.Close() }, io.EOF, syscall.EPIPE},
		"the server closes one direction": {func(c conns) { _ = c.server.(*memnet.Conn).CloseWrite(); _ = c.client.SetWriteDeadline(time.Now()) }, io.EOF, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, server := connect(t)
				_ = client.SetDeadline(time.Now().Add(time.Hour))
				var read, write error
				var written int
				go func() { _, read = client.Read(make([]byte, 1)) }()
				go func() { written, write = client.Write(make([]byte, buffer+1)) }()
				synctest.Wait()
				if read != nil || write != nil {
					t.Fatalf("got errors %v and %v before the end, want both to wait", read, write)
				}
				test.end(conns{client, server})
				synctest.Wait()
				if !errors.Is(read, test.read) || !errors.Is(write, test.write) || written != buffer {
					t.Errorf("got errors %v and %v after %d bytes, want %v and %v after %d", read, write, written, test.read, test.write, buffer)
				}
			})
		})
	}
}

func TestDeadlinesFollowTheClockOfTheBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, _ := connect(t)
		start := time.Now()
		_ = client.SetReadDeadline(start.Add(time.Minute)) // replaced by the next one
		_ = client.SetReadDeadline(start.Add(time.Hour))
		_, err := client.Read(make([]byte, 1))
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("got error %v, want one of a timeout", err)
		}
		if got := time.Since(start); got != time.Hour {
			t.Errorf("the read ended after %s, want 1h", got)
		}
	})
}

func TestAListenerThatIsClosedRefusesConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := memnet.Listen(buffer)
		waiting, err := listener.Dial(t.Context(), "10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close()
		if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got error %v on a connection that was not accepted, want %v", err, io.EOF)
		}
		if _, err := listener.Dial(t.Context(), "10.0.0.1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got error %v for a new connection, want %v", err, syscall.ECONNREFUSED)
		}
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got error %v from Accept, want %v", err, net.ErrClosed)
		}
	})
}

func TestItCarriesHTTPS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var remote string
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			remote = r.RemoteAddr
			_, _ = io.WriteString(w, "response")
		}))
		_ = server.Listener.Close()
		listener := memnet.Listen(buffer)
		server.Listener = listener
		server.StartTLS()
		client := server.Client()
		client.Transport.(*http.Transport).DialContext = listener.DialContext("2001:db8::7")
		response, err := client.Get("https://example.com")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(response.Body); err != nil || string(got) != "response" {
			t.Errorf("got %q and error %v, want the response", got, err)
		}
		if !strings.HasPrefix(remote, "[2001:db8::7]:") {
			t.Errorf("the server saw a client at %q, want the address that it dialed from", remote)
		}
		_ = response.Body.Close()
		server.Close()
		time.Sleep(time.Minute)
	})
}
