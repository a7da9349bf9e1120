// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// rollouts is a large cluster with two outdated StatefulSets. The new pods of each are available
// some time after its restart.
type rollouts struct {
	take time.Duration
	// start is the time of the first restart. For each StatefulSet, restarted is the time from
	// start to its restart, and looks is the number of times that it was read after its restart.
	start     time.Time
	restarted map[string]time.Duration
	looks     map[string]int
}

func (r *rollouts) server(t *testing.T) http.Handler {
	t.Helper()
	r.restarted, r.looks = map[string]time.Duration{}, map[string]int{}
	mux := http.NewServeMux()
	mux.Handle("/", (&largeCluster{namespaces: 1, serviceAccounts: 2, podsEach: 2, stale: 2}).start(t))
	const statefulSet = "/apis/apps/v1/namespaces/namespace-000/statefulsets/{name}"
	mux.HandleFunc("GET "+statefulSet, func(w http.ResponseWriter, request *http.Request) {
		name, available := request.PathValue("name"), 1
		if at, restarted := r.restarted[name]; restarted {
			r.looks[name]++
			if time.Since(r.start) < at+r.take {
				available = 0
			}
		}
		reply(w, fmt.Sprintf(`{"kind":"StatefulSet","apiVersion":"apps/v1","metadata":{"namespace":"namespace-000","name":%q},
			"spec":{"replicas":1},"status":{"replicas":1,"updatedReplicas":1,"availableReplicas":%d}}`, name, available))
	})
	mux.HandleFunc("PATCH "+statefulSet, func(w http.ResponseWriter, request *http.Request) {
		if r.start.IsZero() {
			r.start = time.Now()
		}
		r.restarted[request.PathValue("name")] = time.Since(r.start)
		reply(w, `{"kind":"StatefulSet","apiVersion":"apps/v1","metadata":{"name":"any"}}`)
	})
	return mux
}

func TestRestartWaitsForEachRollout(t *testing.T) {
	t.Parallel()
	const failed = "failed   not done after %s: 0 of 1 pods are available"
	for sentence, test := range map[string]struct {
		take time.Duration
		args []string
		code int
		// first and second are the results of the StatefulSets.
		first, second string
		restarted     map[string]time.Duration
		// looks may be nil, because it is not defined whether the command reads once more after
		// ten minutes.
		looks map[string]int
		end   time.Duration
	}{
		"one after the other, with a look a second": {
			90 * time.Second, nil, command.ExitOK, "restarted", "restarted",
			map[string]time.Duration{"set-0": 0, "set-1": 90 * time.Second}, map[string]int{"set-0": 91, "set-1": 91}, 180 * time.Second,
		},
		"and ends at the first one that is not done in time": {
			time.Hour, []string{"--timeout", "119s500ms"}, command.ExitFound, fmt.Sprintf(failed, "1m59.5s"), "planned",
			map[string]time.Duration{"set-0": 0}, map[string]int{"set-0": 120}, 119500 * time.Millisecond,
		},
		"for ten minutes without --timeout": {
			time.Hour, nil, command.ExitFound, fmt.Sprintf(failed, "10m0s"), "planned",
			map[string]time.Duration{"set-0": 0}, nil, 10 * time.Minute,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &rollouts{take: test.take}
				args := append([]string{"restart", "--stale", "--all-namespaces", "--yes"}, test.args...)
				code, out, errOut := runAgainst(t, r.server(t), "", args...)
				end := time.Since(r.start)
				if code != test.code || end != test.end {
					t.Errorf("got %d after %s, want %d after %s: %s%s", code, end, test.code, test.end, out, errOut)
				}
				lines := strings.Split(out, "\n")
				for i, result := range []string{test.first, test.second} {
					if line := lines[min(i+1, len(lines)-1)]; !strings.HasPrefix(line, "namespace-000  statefulset/set-"+fmt.Sprint(i)) || !strings.HasSuffix(line, result) {
						t.Errorf("got the line %q, want %s", line, result)
					}
				}
				diff := cmp.Diff(test.restarted, r.restarted)
				if test.looks != nil {
					diff += cmp.Diff(test.looks, r.looks)
				}
				if diff != "" {
					t.Errorf("restarts and looks (-want +got):\n%s", diff)
				}
			})
		})
	}
}
