// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// freeInterval is how often FreeMemory checks whether there is garbage.
	freeInterval = 2 * time.Second
	// freeAfter is the number of received objects that makes a collection worthwhile: they
	// leave a few megabytes of garbage, and a collection takes some milliseconds.
	freeAfter = 10_000
)

// FreeMemory returns memory to the operating system until ctx is done: once the
// caches have synced, and then whenever many changes were received.
//
// Decoding the first list of a large cluster takes many times the memory that is
// kept of it. Without this, that memory stays resident until the program has
// allocated as much again, which can take hours.
func FreeMemory(ctx context.Context, caches ...*Cache) error {
	next, repeat := uint64(0), false
	_ = wait.PollUntilContextCancel(ctx, freeInterval, false, func(context.Context) (bool, error) {
		received, due := uint64(0), true
		for _, c := range caches {
			received += c.received.Load()
			due = due && c.HasSynced()
		}
		if due = due && received >= next; due {
			next = received + freeAfter
		}
		if due || repeat {
			debug.FreeOSMemory()
		}
		// Some of the garbage is still referenced when the list has just arrived.
		repeat = due
		return false, nil
	})
	return nil
}
