// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// A dry run passes every admission webhook of the cluster, so status sends one only for a
// ServiceAccount with a pod that differs from the evaluation of the rules.
func TestTheLoadOfStatusOn5000ServiceAccounts(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		namespaces, stale, dryRuns, atOnce, rows int
		// reads counts two GET requests for each namespace, one for each page of 500
		// ServiceAccounts, six for the installation and its policies, and one for the owner of
		// each stale pod. perSecond is the highest number of requests in one second: 300 at once, and then one every 20 ms.
		reads, perSecond int
		args             []string
		note             string
		code             int
	}{
		"all pods are current":      {namespaces: 200, rows: 1, reads: 2*200 + 10 + 6, perSecond: 364},
		"20 ServiceAccounts differ": {namespaces: 4, stale: 20, dryRuns: 20, atOnce: 4, rows: 26, reads: 2*4 + 1 + 6 + 20, perSecond: 56, code: command.ExitFound},
		"no dry runs":               {namespaces: 4, stale: 20, rows: 27, reads: 2*4 + 1 + 6 + 20, perSecond: 35, args: []string{"--no-dry-run"}, note: "not by the cluster: --no-dry-run, in the namespace namespace-000\n", code: command.ExitFound},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &largeCluster{namespaces: test.namespaces, serviceAccounts: 25, podsEach: 25, stale: test.stale}
				code, out, errOut := runAgainst(t, c.start(t), "", append([]string{"status", "--all-namespaces", "--stale"}, test.args...)...)
				if code != test.code || errOut != "" || !strings.Contains(out, test.note) {
					t.Errorf("got %d, want %d: %s%s", code, test.code, out, errOut)
				}
				if rows := strings.Count(out, "\n"); rows != test.rows {
					t.Errorf("got %d rows, want %d: %s", rows, test.rows, out)
				}
				if count, atOnce := c.dryRunsServed(); count != test.dryRuns || atOnce != test.atOnce {
					t.Errorf("got %d dry runs, %d at once, want %d and %d", count, atOnce, test.dryRuns, test.atOnce)
				}
				if count, perSecond := c.served(http.MethodGet); count != test.reads || perSecond != test.perSecond {
					t.Errorf("got %d reads, and up to %d requests in a second, want %d and %d", count, perSecond, test.reads, test.perSecond)
				}
			})
		})
	}
}
