// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alloc counts the memory that a function allocates. Tests use it to show that users
// cannot make the program allocate much more than they send.
package alloc

import (
	"runtime"
	"runtime/debug"
)

// attempts is the most times that Least calls the function.
const attempts = 5

// Least calls f until a call allocates no more than limit bytes, at most five times, and returns
// the lowest number of bytes that a call allocated. It also counts what the rest of the process
// allocates, which can only add to the result. It turns off the garbage collector, which would
// empty pools, so that refilling them would count.
//
// Only tests that are not parallel may use it.
func Least(limit int, f func()) int {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := once(f)
	for i := 1; i < attempts && least > limit; i++ {
		least = min(least, once(f))
	}
	return least
}

// once returns the bytes that the process allocates while f runs.
func once(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}
