// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// The lines of Go in the page on APIs are lines of the program that the tests run with
// the SDKs.
func TestThePageOnAPIsHasTheLinesOfTheProgram(t *testing.T) {
	plain := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	tested := map[string]bool{}
	for line := range strings.Lines(tree.Read(t, root, "test/e2e/sdk/go/credentials/apis.go")) {
		tested[plain(line)] = true
	}
	found := 0
	for _, b := range blocksOf(pages(t)["docs/apis.md"]) {
		if b.language != "go" {
			continue
		}
		for line := range strings.Lines(b.text) {
			found++
			if !tested[plain(line)] {
				t.Errorf("got %q, want a line of the program", plain(line))
			}
		}
	}
	if found < 10 {
		t.Errorf("got %d lines of Go, want the lines for OpenAI and Snowflake", found)
	}
}
