// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bounds defines how much memory and how many connections callers of lanyard-webhook
// may use at each stage of a request, and a Pool that shares these fairly.
package bounds

import "time"

// Connections limits the connections of one server.
type Connections struct {
	// Open is the maximum number of open connections.
	Open int
	// Fresh is the maximum number of connections that have not sent a request yet, and
	// FreshOfOneAddress that of one address.
	Fresh, FreshOfOneAddress int
	// Ending is the maximum number of connections that were closed to make room and whose
	// handlers have not returned yet.
	Ending int
}

var (
	// Reviews is the limit for all API servers together. An API server has one connection for
	// each concurrent review, and a review takes a millisecond.
	Reviews = Connections{Open: 256, Fresh: 48, FreshOfOneAddress: 24, Ending: 16}
	// Others is the limit for kubelets and Prometheus.
	Others = Connections{Open: 32, Fresh: 8, FreshOfOneAddress: 4, Ending: 8}
)

// Memory of requests at each stage.
const (
	// UsualBody is larger than nearly all bodies. It is part of the connection's memory.
	UsualBody = 64 << 10
	// LargeBodies is for what has been received of bodies larger than UsualBody, each at most
	// 7 MiB.
	LargeBodies = 13 << 20
	// UsualDecisions is for decisions of at most 512 KiB each.
	UsualDecisions = 6 << 20
	// LargeDecisions is for larger decisions.
	LargeDecisions = 10 << 20
	// Responses is for responses with their patches, until their clients have read them.
	Responses = 6 << 20
	// Reads is the maximum number of concurrent live reads of each of the two resources. An
	// API server takes some milliseconds for each.
	Reads = 16
	// PendingReads is the maximum number of reads that wait for their turn.
	PendingReads = 256
	// UsualMetadata is larger than the metadata of nearly all objects. Larger objects are
	// read one at a time per resource.
	UsualMetadata = 8 << 10
	// LargeMetadata is the maximum that is read. The API server allows 256 KiB of
	// annotations, and 1.5 MiB in total.
	LargeMetadata = 320 << 10
)

const (
	// FirstBytes limits the bytes read from a connection up to the header of its first
	// request: crypto/tls uses up to 18 bytes of memory for each byte of a hello until the
	// handshake ends. A Go client sends a hello of 1.5 KB. The limit leaves room for four
	// certificates of 2 KB and a header.
	FirstBytes = 16 << 10
	// FreshBytes is an upper bound for the memory of a connection until its handshake has
	// ended.
	FreshBytes = 288 << 10
	// HandshakeTimeout limits the TLS handshake, and then reading the header of a request.
	// An API server takes some milliseconds.
	HandshakeTimeout = 2 * time.Second
)

// CacheBytes returns the parts of GOMEMLIMIT for cached ServiceAccounts and Namespaces.
func CacheBytes(memory int64) (serviceAccounts, namespaces int64) {
	return memory * 3 / 16, memory / 40
}
