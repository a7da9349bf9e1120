// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// A dry run passes every admission webhook of the cluster, so status sends one only for a
// ServiceAccount with a pod that differs from the evaluation of the rules.
func TestTheLoadOfStatusOn5000ServiceAccounts(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		namespaces, stale, dryRuns, rows int
		args                             []string
		note                             string
		code                             int
	}{
		"all pods are current":      {namespaces: 200, rows: 1},
		"20 ServiceAccounts differ": {namespaces: 4, stale: 20, dryRuns: 20, rows: 21, code: command.ExitFound},
		"no dry runs":               {namespaces: 4, stale: 20, rows: 22, args: []string{"--no-dry-run"}, note: "not by the cluster: --no-dry-run\n", code: command.ExitFound},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c := &largeCluster{namespaces: test.namespaces, serviceAccounts: 25, podsEach: 25, stale: test.stale}
			args := append([]string{"lanyard", "--kubeconfig", c.start(t), "status", "--all-namespaces", "--stale"}, test.args...)
			code, out, errOut := run(t, args...)
			if code != test.code || errOut != "" || !strings.Contains(out, test.note) {
				t.Errorf("got %d, want %d: %s%s", code, test.code, out, errOut)
			}
			if rows := strings.Count(out, "\n"); rows != test.rows {
				t.Errorf("got %d rows, want %d: %s", rows, test.rows, out)
			}
			if count, atOnce := c.dryRunsServed(); count != test.dryRuns || atOnce > 4 {
				t.Errorf("got %d dry runs, %d at once, want %d, and at most 4 at once", count, atOnce, test.dryRuns)
			}
			// Two for each namespace, 10 pages of ServiceAccounts, and the installation with its policies.
			if count, perSecond := c.served(http.MethodGet); count > 2*test.namespaces+10+8 || perSecond > 300+50+25 {
				t.Errorf("got %d requests, and up to %d per second", count, perSecond)
			}
		})
	}
}
