// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile models a client that tries to exhaust a server's memory, goroutines, connections
// and time. It misbehaves at each stage of a request. It works on a real network and in a bubble of
// testing/synctest.
package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Stage is a part of a request: what the client sends to get there, and what comes next.
type Stage struct {
	// Handshake is set for a stage before the handshake has ended, when nothing is encrypted.
	Handshake bool
	// Before is sent first. Answered is set if the client waits for its response.
	Before   string
	Answered bool
	// Next is what a good client would send next.
	Next string
}

// Behavior is what the client does at a stage. It must return when the connection is closed or the
// context ends.
type Behavior func(ctx context.Context, conn net.Conn, next string)

// Silent sends one half and then nothing. It does not read.
func Silent(ctx context.Context, conn net.Conn, next string) {
	_, _ = io.WriteString(conn, next[:len(next)/2])
	for ctx.Err() == nil && write(conn, "") {
		sleep(ctx, time.Second)
	}
}

// pause is the time between two bytes of a slow client, and between two connections.
const pause = 100 * time.Millisecond

// Slow sends a byte at a time, and reads as slowly.
func Slow(ctx context.Context, conn net.Conn, next string) {
	for i := 0; ctx.Err() == nil && write(conn, next[i%len(next):][:1]); i++ {
		sleep(ctx, pause)
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _ = conn.Read(make([]byte, 1))
	}
}

// Endless sends data forever, and does not read.
func Endless(ctx context.Context, conn net.Conn, next string) {
	_, _ = io.WriteString(conn, next[:len(next)/2])
	for ctx.Err() == nil && write(conn, strings.Repeat("x", 4<<10)) {
	}
}

// Pipelining keeps sending the next request, and does not read.
func Pipelining(ctx context.Context, conn net.Conn, next string) {
	for ctx.Err() == nil && write(conn, next) {
	}
}

// Gone disconnects halfway.
func Gone(_ context.Context, conn net.Conn, next string) {
	_, _ = io.WriteString(conn, next[:len(next)/2])
	_ = conn.Close()
}

func write(conn net.Conn, text string) bool {
	_, err := io.WriteString(conn, text)
	return err == nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Client has one connection at a time.
type Client struct {
	// Dial opens one.
	Dial func(ctx context.Context) (net.Conn, error)
	// TLS is set if the server speaks TLS.
	TLS   bool
	Stage Stage
	Behavior
	// Connections is how many the client opens, one after the other.
	Connections int
}

// Run attacks until the context ends.
func (c *Client) Run(ctx context.Context) {
	for range c.Connections {
		c.connect(ctx)
		sleep(ctx, pause)
	}
}

func (c *Client) connect(ctx context.Context) {
	raw, err := c.Dial(ctx)
	if err != nil {
		return
	}
	conn := raw
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	if c.TLS && !c.Stage.Handshake {
		encrypted := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // an attacker does not care who answers
		if encrypted.HandshakeContext(ctx) != nil {
			return
		}
		conn = encrypted
	}
	if !write(conn, c.Stage.Before) {
		return
	}
	if c.Stage.Answered {
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	c.Behavior(ctx, conn, c.Stage.Next)
}

// Hello returns a TLS hello of nearly this many bytes, at most 64 KiB, for which crypto/tls
// uses as much memory as possible: it contains session binders of one byte each.
func Hello(size int) string {
	var hello recorder
	_ = tls.Client(&hello, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(context.Background()) // nobody answers
	text := []byte(hello.sent.String())
	binders := strings.Repeat("\x01x", max(2, size-len(text)-32)/2)
	session := "\x00\x07\x00\x01x\x00\x00\x00\x00" + string(binary.BigEndian.AppendUint16(nil, uint16(len(binders)))) + binders
	extension := append([]byte{0, 41}, binary.BigEndian.AppendUint16(nil, uint16(len(session)))...)
	extension = append(extension, session...)

	// Adjust the lengths of the record, of the hello, and of its extensions, which
	// follow the version, a random number, a session, the cipher suites and the
	// compressions.
	add := func(at int) {
		binary.BigEndian.PutUint16(text[at:], binary.BigEndian.Uint16(text[at:])+uint16(len(extension)))
	}
	at := 5 + 4 + 2 + 32
	at += 1 + int(text[at])
	at += 2 + int(binary.BigEndian.Uint16(text[at:]))
	at += 1 + int(text[at])
	add(3)
	add(7)
	add(at)
	return records(append(text, extension...))
}

// records splits a record that is too long into records of 16 KiB.
func records(long []byte) string {
	var text []byte
	for part := range slices.Chunk(long[5:], 16<<10) {
		text = append(text, long[:3]...)
		text = binary.BigEndian.AppendUint16(text, uint16(len(part)))
		text = append(text, part...)
	}
	return string(text)
}

// recorder is a connection without a peer.
type recorder struct {
	net.Conn
	sent strings.Builder
}

func (r *recorder) Write(text []byte) (int, error)   { return r.sent.Write(text) }
func (r *recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r *recorder) Close() error                     { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
