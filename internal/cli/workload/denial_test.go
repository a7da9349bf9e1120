// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"
	"strings"
	"testing"
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
