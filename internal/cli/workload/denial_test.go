// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/finding"
)

// A denial by the guard is recognized by a sentence of the policy.
func TestTheSentenceOfTheGuardIsInItsPolicy(t *testing.T) {
	t.Parallel()
	policy, err := os.ReadFile("../../../charts/lanyard/templates/guard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"label lanyard.dev/identity=", "label lanyard.dev/identity=injected", "lanyard.dev/inject"} {
		if !strings.Contains(string(policy), guardSentence+key) {
			t.Errorf("the policies have no sentence with %q", guardSentence+key)
		}
	}
}

// Users paste the command at the end of a fix.
func TestTheFixOfAFailedCallEndsInItsCommand(t *testing.T) {
	t.Parallel()
	fix, link := callFix(`no endpoints available for service "lanyard-webhook"`)
	if !strings.HasSuffix(fix, ": kubectl describe pods --all-namespaces --selector app.kubernetes.io/name=lanyard-webhook") {
		t.Errorf("got the fix %q", fix)
	}
	if link != finding.Page("troubleshooting/webhook-down.md#are-the-replicas-ready") {
		t.Errorf("got the link %q", link)
	}
}
