// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// The states are defined once: the help text is generated from the definitions, and the page
// contains a copy.
func TestThePageAndTheHelpDefineTheStates(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/cli/status.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| A pod is | if |\n|---|---|\n"
	for _, state := range States() {
		want += fmt.Sprintf("| `%s` | %s |\n", state.State, state.Means)
	}
	if !strings.Contains(string(page), want+"\n") {
		t.Errorf("docs/cli/status.md lacks the table\n%s", want)
	}
	help := NewStatusCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard())).Long
	for _, state := range States() {
		if !strings.Contains(help, "\n  "+string(state.State)+" ") {
			t.Errorf("the help lacks %s:\n%s", state.State, help)
		}
	}
}
