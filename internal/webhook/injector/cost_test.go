// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"net/http"
	"runtime"
	runtimedebug "runtime/debug"
	"testing"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
)

// costCases are reviews and their limits.
var costCases = map[string]struct {
	identity    bool // for three clouds
	containers  int
	allocations float64
	allocated   float64 // bytes
	answer      int     // bytes
	growing     int     // bytes of the answer for one more container
}{
	"three clouds, 2 containers":  {true, 2, 48, 2500, 7900, 1880},
	"three clouds, 20 containers": {true, 20, 84, 4500, 41700, 1880},
	"no identity, 2 containers":   {false, 2, 30, 1400, 178, 0},
	"no identity, 20 containers":  {false, 20, 30, 1400, 178, 0},
}

// costHandler returns a handler for pods with an identity for three clouds, or without.
func costHandler(tb testing.TB, identity bool) http.Handler {
	tb.Helper()
	var account map[string]string
	if identity {
		account = threeClouds()
	}
	pods, _ := newPods(tb, account)
	pods.Recorder = uncounted{}
	return admission.NewHandler(pods, admission.NewBudget(), uncounted{}, logr.Discard())
}

// The API server stores the answer's patch, and each replica keeps answers in memory.
func TestAnAnswerIsShort(t *testing.T) {
	t.Parallel()
	for name, test := range costCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := costHandler(t, test.identity)
			length := func(containers int) int {
				serve, answer := replay(t, handler, realReview(t, realPod(t, "app", containers)))
				serve()
				return answer.written
			}
			got, more := length(test.containers), length(test.containers+1)
			if got == 0 || got > test.answer {
				t.Errorf("got an answer of %d bytes, want at most %d", got, test.answer)
			}
			if more-got > test.growing {
				t.Errorf("got %d bytes for one more container, want at most %d", more-got, test.growing)
			}
		})
	}
}

// BenchmarkLimitCost fails if a review exceeds its limits. They are tight, and hold for the
// version of Go in CI, which runs "make bench-limits". A change that needs more must raise them.
func BenchmarkLimitCost(b *testing.B) {
	for name, test := range costCases {
		b.Run(name, func(b *testing.B) {
			allocations, allocated := cost(b, costHandler(b, test.identity), realReview(b, realPod(b, "app", test.containers)))
			b.ReportMetric(allocations, "allocs/review")
			b.ReportMetric(allocated, "B/review")
			if allocations > test.allocations {
				b.Errorf("got %v allocations, want at most %v", allocations, test.allocations)
			}
			if allocated > test.allocated {
				b.Errorf("got %v bytes allocated, want at most %v", allocated, test.allocated)
			}
		})
	}
}

// cost returns the allocations of one review and their bytes.
func cost(b *testing.B, handler http.Handler, review []byte) (allocations, allocated float64) {
	b.Helper()
	const runs = 200
	serve, answer := replay(b, handler, review)
	allocations = testing.AllocsPerRun(runs, serve)
	// The collector would empty the pools, and each processor has its own: refilling them
	// would count.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer runtimedebug.SetGCPercent(runtimedebug.SetGCPercent(-1))
	serve()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		serve()
	}
	runtime.ReadMemStats(&after)
	if answer.written == 0 {
		b.Fatalf("got no answer to a review of %d bytes", len(review))
	}
	return allocations, float64(after.TotalAlloc-before.TotalAlloc) / runs
}
