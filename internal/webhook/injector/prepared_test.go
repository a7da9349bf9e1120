// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// The additions to pods are kept for each lifetime that a pod asks for, and for each
// ServiceAccount with profiles they take much more than usual.
func TestOneServiceAccountDoesNotFillTheMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	for name, role := range map[string]string{"long names": strings.Repeat("a/", 80) + "app", "short names": "a"} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // it measures the heap
			account := threeClouds()
			for i := range 15 {
				account[fmt.Sprintf("lanyard.dev/aws-role-arn.p%d", i)] = "arn:aws:iam::111122223333:role/" + role
			}
			fillWith(t, account)
		})
	}
}

// fillWith creates pods of the ServiceAccount with different lifetimes of their tokens.
func fillWith(t *testing.T, account map[string]string) {
	t.Helper()
	pods, _ := newPods(t, account)
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // empties the pools
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	const most = 2 << 20 // a stage of the test in internal/webhook/bounds
	before, grown := heap(), int64(0)
	for i := range 500 {
		response := ask(t, pods, create(fmt.Appendf(nil, `{"metadata":{"name":"p","annotations":{"lanyard.dev/token-expiration-seconds":"%d"}},`+
			`"spec":{"serviceAccountName":"app","containers":[{"name":"a"}]}}`, 3600+i)))
		if response.Code != 0 || len(response.Patch) == 0 {
			t.Fatalf("got no patch: %s", response.Message)
		}
		if i%20 == 0 {
			grown = max(grown, heap()-before)
		}
	}
	if grown > most {
		t.Errorf("got %d KiB kept for one ServiceAccount, want at most %d", grown>>10, most>>10)
	}
	runtime.KeepAlive(pods)
}
