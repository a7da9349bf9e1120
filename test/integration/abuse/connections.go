// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// handshakes limits the connections that are being opened at the same time, because
	// they should use up the webhook's memory, not the processors of the machine.
	handshakes = 32
	// renewal is the time until a connection that ended is opened again.
	renewal = 500 * time.Millisecond
)

// dialer opens one connection.
type dialer func(ctx context.Context) (net.Conn, error)

// netDialer returns a dialer that connects from the target's address.
func (t *Target) netDialer() *net.Dialer {
	d := &net.Dialer{Timeout: 5 * time.Second}
	if t.From != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(t.From)}
	}
	return d
}

// plain opens TCP connections.
func (t *Target) plain(address string) dialer {
	return func(ctx context.Context) (net.Conn, error) { return t.netDialer().DialContext(ctx, "tcp", address) }
}

// encrypted opens TLS connections. An attacker does not care who answers.
func (t *Target) encrypted(address string) dialer {
	d := tls.Dialer{NetDialer: t.netDialer(), Config: &tls.Config{InsecureSkipVerify: true}}
	return func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return d.DialContext(ctx, "tcp", address)
	}
}

// keep keeps n connections open until ctx ends. It calls use with each, and opens
// another when the peer has closed it.
func keep(ctx context.Context, tally *Tally, n int, dial dialer, use func(context.Context, net.Conn) error) {
	var open sync.WaitGroup
	opening := make(chan struct{}, handshakes)
	for range n {
		open.Go(func() {
			for ctx.Err() == nil {
				keepOne(ctx, tally, opening, dial, use)
				sleep(ctx, renewal)
			}
		})
	}
	open.Wait()
}

func keepOne(ctx context.Context, tally *Tally, opening chan struct{}, dial dialer, use func(context.Context, net.Conn) error) {
	select {
	case <-ctx.Done():
		return
	case opening <- struct{}{}:
	}
	conn, err := dial(ctx)
	<-opening
	if ctx.Err() == nil && err != nil {
		tally.add("connections refused or not answered")
	}
	if err != nil {
		return
	}
	tally.add("connections opened")
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	_ = use(ctx, conn) // the peer may reset the connection
	if ctx.Err() == nil {
		tally.add("connections closed by the webhook")
	}
}

// connections keeps n connections with each dialer.
func connections(name string, n int, dialers func(*Target) []dialer, use func(context.Context, net.Conn) error) Load {
	return Load{name, func(ctx context.Context, target *Target, tally *Tally) {
		var ports sync.WaitGroup
		for _, dial := range dialers(target) {
			ports.Go(func() { keep(ctx, tally, n, dial, use) })
		}
		ports.Wait()
	}}
}

// reviewPort opens TLS connections to the port for reviews.
func reviewPort(t *Target) []dialer { return []dialer{t.encrypted(t.Reviews)} }

// allPorts opens TLS connections to the port for reviews, and TCP connections to the two
// other ports.
func allPorts(t *Target) []dialer {
	return []dialer{t.encrypted(t.Reviews), t.plain(t.Metrics), t.plain(t.Health)}
}

// send sends a text. Then it discards the peer's data until the peer closes the connection.
func send(text []byte) func(context.Context, net.Conn) error {
	return func(_ context.Context, conn net.Conn) error {
		if _, err := conn.Write(text); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, conn)
		return err
	}
}

// HeaderFlood keeps n connections to each port, with headers of one MiB in very
// many short lines.
func HeaderFlood(n int) Load {
	var header bytes.Buffer
	header.WriteString("GET / HTTP/1.1\r\nHost: x\r\n")
	for i := range 148_000 {
		header.WriteString(word(i, "abcdefghijklmnopqrstuvwxyz") + ":\r\n")
	}
	return connections("headers of one MiB", n, allPorts, send(header.Bytes()))
}

// head returns the head of a POST of a review.
func head(query string, length int) string {
	return fmt.Sprintf("POST %s%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", podPath, query, length)
}

// AbsentBodies keeps n connections that declare a usual body and do not send it.
func AbsentBodies(n int) Load {
	return connections("bodies that do not come", n, reviewPort, send([]byte(head("", 64<<10)+"{")))
}

// DeclaredBodies keeps n connections that declare a body of 7 MiB and send one byte.
func DeclaredBodies(n int) Load {
	return connections("large bodies that do not come", n, reviewPort, send([]byte(head("", 7<<20)+"{")))
}

// UnreadAnswers keeps n connections that send small reviews of pods with this many
// containers, whose responses are large, and never read one.
func UnreadAnswers(n int, containers ...int) Load {
	return Load{"responses that are not read", func(ctx context.Context, target *Target, tally *Tally) {
		var requests [][]byte
		for _, count := range containers {
			body := target.podReview(count)
			requests = append(requests, append([]byte(head("?timeout=30s", len(body))), body...))
		}
		keep(ctx, tally, n, target.encrypted(target.Reviews), func(_ context.Context, conn net.Conn) error {
			// The kernel must not take the responses instead.
			_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
			for i := 0; ; i++ {
				if _, err := conn.Write(requests[i/4%len(requests)]); err != nil {
					return err
				}
			}
		})
	}}
}

// IdleConnections keeps n connections to each port, and n more that have done a
// TLS handshake. None of them sends a request.
func IdleConnections(n int) Load {
	return connections("idle connections", n, func(t *Target) []dialer { return append(allPorts(t), t.plain(t.Reviews)) }, send(nil))
}

// SlowDrip keeps n connections that send one byte of a request each second.
func SlowDrip(n int) Load {
	return connections("one byte of a request per second", n, reviewPort, func(ctx context.Context, conn net.Conn) error {
		return slowly(ctx, conn, strings.Repeat(head("", 64<<10), 4), 1, time.Second)
	})
}

// slowly sends a text in parts, with a pause after each.
func slowly(ctx context.Context, conn net.Conn, text string, part int, pause time.Duration) error {
	for bytes := range slices.Chunk([]byte(text), part) {
		if _, err := conn.Write(bytes); err != nil {
			return err
		}
		sleep(ctx, pause)
	}
	return nil
}

// SlowLargeBodies keeps n connections that declare 7 MiB, send the first 64 KiB
// slowly, and then a byte each second.
func SlowLargeBodies(n int) Load {
	text := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","note":"` + strings.Repeat("x", 64<<10)
	return connections("large bodies that come slowly", n, reviewPort, func(ctx context.Context, conn net.Conn) error {
		if _, err := io.WriteString(conn, head("?timeout=30s", 7<<20)); err != nil {
			return err
		}
		if err := slowly(ctx, conn, text[:64<<10], 4<<10, 50*time.Millisecond); err != nil {
			return err
		}
		return slowly(ctx, conn, text, 1, time.Second)
	})
}
