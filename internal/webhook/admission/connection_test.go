// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// The addresses of clients.
const apiserver, attacker = "10.0.0.1", "10.0.0.2"

// connBuffer is the size of the buffers of a connection.
const connBuffer = 16 << 10

// serve runs the server of lanyard-webhook with the handler until the test ends.
func serve(t *testing.T, handler http.Handler) *memnet.Listener {
	t.Helper()
	return memnet.Serve(t, httpserver.New("", handler, nil, bounds.Reviews, logr.Discard()), connBuffer)
}

// clientOf returns the HTTP client of an API server.
func clientOf(listener *memnet.Listener) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: listener.DialContext(apiserver)}}
}

// post sends a review that may take 30 seconds.
func post(ctx context.Context, t *testing.T, client *http.Client, body string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://lanyard?timeout=30s", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, response)
}

// read returns the status and the body of a response.
func read(t *testing.T, response *http.Response) (status int, body string) {
	t.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// head returns the head of a request with a body of this length.
func head(timeout string, length int) string {
	return fmt.Sprintf("POST /?timeout=%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", timeout, length)
}

// readResponse returns the status and the body of the next response.
func readResponse(t *testing.T, conn net.Conn) (status int, body string) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, response)
}

func TestABodyShorterThanItsContentLengthIsRejected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := memnet.Dial(t, serve(t, newFixture(allow(untroubled)).handler), apiserver)
		_, _ = io.WriteString(conn, head("10s", len(review)+1)+review)
		_ = conn.CloseWrite()
		if status, message := readResponse(t, conn); status != http.StatusBadRequest || !strings.Contains(message, "shorter than its Content-Length") {
			t.Errorf("got %d %q, want 400 and that the body is too short", status, message)
		}
	})
}

// Before it responds, net/http reads what is left of a body.
func TestARejectedRequestDoesNotWaitForItsBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := memnet.Dial(t, serve(t, newFixture(allow(untroubled)).handler), attacker)
		start := time.Now()
		_, _ = io.WriteString(conn, strings.Replace(head("10s", len(review)), "application/json", "text/plain", 1))
		status, _ := readResponse(t, conn)
		if took := time.Since(start); status != http.StatusUnsupportedMediaType || took > 2*time.Second {
			t.Errorf("got status %d after %s, want 415 after at most 2 seconds", status, took)
		}
	})
}

// The read deadline of a rejected request can end the context of later requests on its connection.
func TestTheConnectionOfARejectedRequestEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := memnet.Dial(t, serve(t, newFixture(allow(untroubled)).handler), attacker)
		_, _ = io.WriteString(conn, "GET /mutate-v1-pod HTTP/1.1\r\nHost: x\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusMethodNotAllowed || !response.Close {
			t.Errorf("got %s, close %t, want 405 on a connection that ends", response.Status, response.Close)
		}
	})
}

// The deadlines of a review do not apply to the next one on its connection.
func TestAConnectionOutlivesTheTimeOfALargeReview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(serve(t, newFixture(decide(func(context.Context, *admission.Request[object]) (admission.Response, error) {
			time.Sleep(20 * time.Second)
			return untroubled, nil
		})).handler))
		var connections []string
		for _, body := range []string{withObject(1 << 20), review} {
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { connections = append(connections, info.Conn.LocalAddr().String()) },
			})
			if _, answer := post(ctx, t, client, body); !strings.Contains(answer, `"allowed":true`) {
				t.Fatalf("got %s, want the review allowed", answer)
			}
			time.Sleep(time.Minute)
		}
		if len(connections) != 2 || connections[0] != connections[1] {
			t.Errorf("got connections from %q, want one for both reviews", connections)
		}
	})
}

// The live reads of a decider take turns by the address of the caller.
func TestTheDeciderKnowsTheAddressOfTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got netip.Addr
		client := clientOf(serve(t, newFixture(decide(func(ctx context.Context, _ *admission.Request[object]) (admission.Response, error) {
			got = bounds.Client(ctx)
			return untroubled, nil
		})).handler))
		if status, answer := post(t.Context(), t, client, review); status != http.StatusOK || got.String() != apiserver {
			t.Errorf("got %d %s and a decision for %s, want one for %s", status, answer, got, apiserver)
		}
	})
}

func TestAServerThatShutsDownDoesNotCutDecisionsShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, shutDown := context.WithCancel(t.Context())
		f := newFixture(decide(func(ctx context.Context, _ *admission.Request[object]) (admission.Response, error) {
			shutDown()
			time.Sleep(20 * time.Second)
			return untroubled, ctx.Err()
		}))
		listener := memnet.Listen(connBuffer)
		ended := make(chan error, 1)
		server := httpserver.New("", f.handler, nil, bounds.Reviews, logr.Discard())
		go func() { ended <- httpserver.Serve(ctx, server, listener, func() bool { return true }) }()
		if status, answer := post(t.Context(), t, clientOf(listener), review); status != http.StatusOK {
			t.Errorf("got %d %s, want the response to a request before the shutdown", status, answer)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}

// The handler of a closed connection used to hold memory for up to 27 seconds.
func TestTheDecisionOfACallerThatIsGoneEnds(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, listener *memnet.Listener, conn *memnet.Conn){
		"the caller closes the connection": func(_ *testing.T, _ *memnet.Listener, conn *memnet.Conn) { _ = conn.Close() },
		"the caller opens very many others": func(t *testing.T, listener *memnet.Listener, _ *memnet.Conn) {
			for range bounds.Reviews.Open {
				conn := memnet.Dial(t, listener, attacker)
				go func() { _, _ = io.WriteString(conn, head("30s", len(review))+review) }()
				synctest.Wait()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(decide(func(ctx context.Context, _ *admission.Request[object]) (admission.Response, error) {
					<-ctx.Done()
					return admission.Response{}, ctx.Err()
				}))
				listener := serve(t, f.handler)
				conn := memnet.Dial(t, listener, attacker)
				_, _ = io.WriteString(conn, head("30s", len(review))+review)
				synctest.Wait()
				leave(t, listener, conn)
				synctest.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.durations) != 1 || f.durations[0] != 0 {
					t.Errorf("got decisions that took %v, want one that ended at once", f.durations)
				}
			})
		})
	}
}

// The server does not wait for a body that arrives byte by byte.
func TestABodyThatTricklesIsCutOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		timeout string
		want    time.Duration
	}{
		"before the API server gives up": {"1s", 900 * time.Millisecond},
		"after two seconds":              {"30s", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := memnet.Dial(t, serve(t, newFixture(allow(untroubled)).handler), attacker)
				start := time.Now()
				go func() {
					_, err := io.WriteString(conn, head(test.timeout, 100_000))
					for ; err == nil; time.Sleep(30 * time.Millisecond) {
						_, err = io.WriteString(conn, "{")
					}
				}()
				status, _ := readResponse(t, conn)
				if took := time.Since(start); status != http.StatusBadRequest || took != test.want {
					t.Errorf("got status %d after %s, want 400 after %s", status, took, test.want)
				}
			})
		})
	}
}

// longResponse is a Decider whose responses of 178 KB do not fit into the buffer of a connection.
var longResponse = decide(func(context.Context, *admission.Request[object]) (admission.Response, error) {
	return admission.Response{Reason: reason.Injected, Patch: patchOf(strings.Repeat("1", 130<<10))}, nil
})

func TestAResponseThatIsNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(longResponse)
		var took time.Duration
		conn := memnet.Dial(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			f.handler.ServeHTTP(w, r)
			took = time.Since(start)
		})), attacker)
		_, _ = io.WriteString(conn, head("30s", len(review))+review)
		synctest.Wait()
		if held := f.budget.Held(); held.Responses < 170<<10 || held.Bodies+held.Decisions > 0 {
			t.Errorf("got %+v held while the client does not read, want only the response", held)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if held := f.budget.Held(); took != 2*time.Second || held != (admission.Held{}) {
			t.Errorf("the handler took %s, and %+v is held; want 2s and nothing", took, held)
		}
		if log := f.log.String(); !strings.Contains(log, "Failed to send the response") {
			t.Errorf("got log %s, want a line about the response", log)
		}
	})
}

// Anyone in the cluster can send reviews. The budget counts everything that the server has
// read of them.
func TestLargeReviewsThatDoNotEndFillNoMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const clients, chunk = 40, 4 << 10
		f := newFixture(allow(untroubled))
		listener := serve(t, f.handler)
		var taken atomic.Int64
		for range clients {
			conn := memnet.Dial(t, listener, attacker)
			go func() {
				_, err := io.WriteString(conn, head("5s", admission.MaxBodyBytes)+"{")
				for n := 0; n < admission.MaxBodyBytes-2*chunk && err == nil; n += chunk {
					if _, err = conn.Write(make([]byte, chunk)); err == nil {
						taken.Add(chunk)
					}
				}
			}()
		}
		synctest.Wait()
		// In addition, each connection holds the first part of a body, and buffers of the
		// network and net/http.
		const each = 64<<10 + connBuffer + 4<<10
		held := f.budget.Held().Bodies
		if got := taken.Load(); got > held+clients*each {
			t.Errorf("the server took %d bytes, want at most the %d of the budget and %d for each client", got, held, each)
		}
		if held < 8<<20 || held > bounds.LargeBodies {
			t.Errorf("got %d bytes of the budget in use, want most of the %d for bodies", held, bounds.LargeBodies)
		}
		time.Sleep(time.Minute)
		if held := f.budget.Held(); held != (admission.Held{}) {
			t.Errorf("got %+v held a minute later, want nothing", held)
		}
	})
}

// A client that stops reading or sending does not delay other clients.
func TestSlowClientsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	// The decision takes nearly as much as the budget allows for a usual one.
	review := withElements(280)
	// Whenever a request needs memory, it interrupts others within 200 ms.
	reviews := []struct {
		body   string
		within time.Duration
	}{
		{review, 400 * time.Millisecond},
		{withObject(100 << 10), 400 * time.Millisecond},
		{withObject(3 << 20), time.Second},
	}
	for name, text := range map[string]string{
		"90 clients that do not read": strings.Repeat(head("30s", len(review))+review, 1000),
		"90 clients that send a byte": head("30s", admission.MaxBodyBytes) + "{",
		"90 clients that send 1 MiB":  head("30s", admission.MaxBodyBytes) + "{" + strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(longResponse)
				listener := serve(t, f.handler)
				for range 90 {
					conn := memnet.Dial(t, listener, attacker)
					go func() { _, _ = io.WriteString(conn, text) }()
				}
				synctest.Wait()
				client := clientOf(listener)
				for _, r := range reviews {
					start := time.Now()
					status, _ := post(t.Context(), t, client, r.body)
					if took := time.Since(start); status != http.StatusOK || took > r.within {
						t.Errorf("got status %d after %s for a review of %d bytes, want 200 within %s", status, took, len(r.body), r.within)
					}
				}
			})
		})
	}
}
