// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package ask

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
	if !strings.Contains(string(policy), guardSentence) {
		t.Errorf("the policy has no sentence with %q", guardSentence)
	}
}
