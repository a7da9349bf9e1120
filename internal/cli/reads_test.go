// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Each part of the cluster is read once in a run, however many parts of a command need it.
func TestNoCommandReadsAPartTwice(t *testing.T) {
	t.Parallel()
	const of = " --namespace namespace-000"
	for _, line := range []string{
		"check" + of, "check --pre", "status --all-namespaces", "status --all-namespaces --stale -o name", "status --all-namespaces --no-dry-run -o json",
		"explain sa/account-000" + of, "label serviceaccounts --all-namespaces --dry-run=client", "version",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			reads := map[string]int{}
			cluster := smallCluster(t)
			server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					mu.Lock()
					reads[r.URL.RequestURI()]++
					mu.Unlock()
				}
				cluster.ServeHTTP(w, r)
			})
			_, _, errOut := runAgainst(t, server, "", strings.Fields(line)...)
			if len(reads) < 2 {
				t.Fatalf("got %d reads: %s", len(reads), errOut)
			}
			for uri, n := range reads {
				if n > 1 {
					t.Errorf("got %d reads of %s, want one", n, uri)
				}
			}
		})
	}
}
