// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The race detector takes memory of its own, and has sync.Pool forget at
// random: what a review costs is only repeatable without it.

package injector_test

import (
	"net/http"
	"runtime"
	runtimedebug "runtime/debug"
	"testing"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
)

// TestCost holds a review to the allocations and the bytes that it takes: both
// are the same on every machine. A change that needs more must say so here.
func TestCost(t *testing.T) {
	accounts := map[string]map[string]string{"three clouds": threeClouds(), "no identity": nil}
	for name, test := range map[string]struct {
		account         string
		containers      int
		allocations     float64
		allocated       float64 // bytes
		answer, growing int     // bytes of the answer; of them for each container
	}{
		"three clouds, 2 containers":  {"three clouds", 2, 37, 2200, 7900, 0},
		"three clouds, 20 containers": {"three clouds", 20, 55, 3400, 41700, 1880},
		"no identity, 2 containers":   {"no identity", 2, 30, 1400, 178, 0},
		"no identity, 20 containers":  {"no identity", 20, 30, 1400, 178, 0},
	} {
		t.Run(name, func(t *testing.T) {
			pods, _ := newPods(t, accounts[test.account])
			pods.Recorder = uncounted{}
			handler := admission.NewHandler(pods, admission.NewBudget(), uncounted{}, logr.Discard())
			answer, allocations, allocated := cost(t, handler, realReview(t, realPod(t, "app", test.containers)))
			if allocations > test.allocations {
				t.Errorf("got %v allocations, want at most %v", allocations, test.allocations)
			}
			if allocated > test.allocated {
				t.Errorf("got %v bytes allocated, want at most %v", allocated, test.allocated)
			}
			if answer > test.answer {
				t.Errorf("got an answer of %d bytes, want at most %d", answer, test.answer)
			}
			if test.growing > 0 {
				more, _, _ := cost(t, handler, realReview(t, realPod(t, "app", test.containers+1)))
				if got := more - answer; got > test.growing {
					t.Errorf("got %d bytes for one more container, want at most %d", got, test.growing)
				}
			}
		})
	}
}

func cost(t *testing.T, handler http.Handler, review []byte) (answer int, allocations, allocated float64) {
	t.Helper()
	const runs = 200
	serve, writer := replay(t, handler, review)
	allocations = testing.AllocsPerRun(runs, serve)
	// The collector would empty the pools, and what fills them again would count.
	defer runtimedebug.SetGCPercent(runtimedebug.SetGCPercent(-1))
	serve()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		serve()
	}
	runtime.ReadMemStats(&after)
	allocated = float64(after.TotalAlloc-before.TotalAlloc) / runs
	if writer.written == 0 {
		t.Fatalf("no answer to a review of %d bytes", len(review))
	}
	return writer.written, allocations, allocated
}
