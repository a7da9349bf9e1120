// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bounds defines how much memory and how many connections the callers of lanyard-webhook may
// use at each stage of a request, and the Pool that they share fairly.
package bounds

import "time"

// Connections limits the connections of one server.
type Connections struct {
	// Open is the number of connections that are open at a time.
	Open int
	// Fresh is the number of those that have not sent a request yet, of which one address
	// has at most FreshOfOneAddress.
	Fresh, FreshOfOneAddress int
	// Ending is the number of connections that were closed to make room and whose handler
	// has not returned yet.
	Ending int
}

var (
	// Reviews is for all API servers together. Each has as many connections as reviews at
	// a time, and a review takes a millisecond.
	Reviews = Connections{Open: 256, Fresh: 48, FreshOfOneAddress: 24, Ending: 16}
	// Others is for kubelets and Prometheus.
	Others = Connections{Open: 32, Fresh: 8, FreshOfOneAddress: 4, Ending: 8}
)

// The memory of requests at each stage.
const (
	// UsualBody is larger than nearly all bodies. It is counted with the connection.
	UsualBody = 64 << 10
	// LargeBodies is for longer bodies, of at most 7 MiB each, as far as they have arrived.
	LargeBodies = 14 << 20
	// UsualDecisions is for decisions of at most 512 KiB each.
	UsualDecisions = 8 << 20
	// LargeDecisions is for others.
	LargeDecisions = 10 << 20
	// Responses is for responses with their patches, until their clients have read them.
	Responses = 6 << 20
	// Reads is the number of live reads at a time of one resource, of which there are two. An
	// API server takes some milliseconds for each.
	Reads = 16
	// PendingReads is the number of those that wait for their turn.
	PendingReads = 256
	// UsualMetadata is the size of the metadata of nearly all objects. Of each resource, one
	// larger object is read at a time.
	UsualMetadata = 8 << 10
	// LargeMetadata is the most that is read. The API server allows 256 KiB of annotations, and
	// up to 1.5 MiB in all.
	LargeMetadata = 320 << 10
)

const (
	// FirstBytes limits what a connection reads before it has sent the header of its first
	// request: crypto/tls takes up to 18 bytes of memory for a byte of a hello, until the handshake
	// ends. A Go client sends a hello of 1.5 KB. There is room for its chain of
	// certificates, four of 2 KB, and a header.
	FirstBytes = 16 << 10
	// HandshakeTimeout limits the TLS handshake, and then reading the header of a request.
	// An API server takes some milliseconds.
	HandshakeTimeout = 2 * time.Second
)

// Estimates of the memory that is not counted in bytes.
const (
	// idleBytes is the memory without a caller, most of which is the program itself.
	idleBytes = 15 << 20
	// FreshBytes is what a connection takes until its handshake has ended, at most.
	FreshBytes = 288 << 10
	// usedBytes is what a connection takes afterwards: its buffers, stacks and goroutines;
	// plainBytes is without TLS.
	usedBytes, plainBytes = 40 << 10, 24 << 10
	// readBytes is what a live read takes: a goroutine and a request to the API server.
	readBytes = 8 << 10
	// decodedTimes is how many times its size the metadata takes while it is received and
	// decoded: the smallest owners take 4.6 times their encoding, and a slice that grows is there
	// twice.
	decodedTimes = 10
)

// CacheBytes returns the part of the memory, GOMEMLIMIT, that is for ServiceAccounts.
func CacheBytes(memory int64) int64 { return memory / 5 }

// Stage is a stage of a request, or memory that is in use without one.
type Stage struct {
	// HeldBy names the limits of the stage.
	Name, HeldBy string
	// Count is the highest number at a time.
	Count int
	// Bytes is the memory of each.
	Bytes int64
}

// Stages returns all stages of a program with this GOMEMLIMIT. A request is at one stage at a time,
// so their sum is an upper bound of the program's memory.
func Stages(memory int64) []Stage {
	const connection = usedBytes + UsualBody
	return []Stage{
		{"without a caller", "", 1, idleBytes},
		{"ServiceAccounts", "metadatacache.Options.MaxTotalBytes", 1, CacheBytes(memory)},
		{"before the first request: the handshake and a header", "Connections.Fresh, FirstBytes, HandshakeTimeout", Reviews.Fresh, FreshBytes},
		{"between requests, and with a usual body", "Connections.Open", Reviews.Open - Reviews.Fresh, connection},
		{"after the connection was closed", "Connections.Ending, the request's context", Reviews.Ending, connection},
		{"while a larger body arrives", "Pool of LargeBodies, bodyTimeout", 1, LargeBodies},
		{"while a usual decision waits", "Pool of UsualDecisions, ?timeout=", 1, UsualDecisions},
		{"while a larger decision waits", "Pool of LargeDecisions, ?timeout=", 1, LargeDecisions},
		{"while a live read waits", "a handler waits for one; readTimeout", Reviews.Open + Reviews.Ending, readBytes},
		{"while a ServiceAccount or Namespace is read", "Pool of Reads, UsualMetadata, readTimeout", 2 * Reads, readBytes + decodedTimes*UsualMetadata},
		{"while large metadata is read", "a Pool of one turn, LargeMetadata, readTimeout", 2, decodedTimes * LargeMetadata},
		{"while a response is written", "Pool of Responses, writeTimeout", 1, Responses},
		{"before the first request of the metrics, if they have TLS", "as above", Others.Fresh, FreshBytes - plainBytes},
		{"on the ports of metrics and probes", "Connections", 2 * (Others.Open + Others.Ending), plainBytes},
	}
}
