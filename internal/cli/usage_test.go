// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// The flags that choose the cluster are in "lanyard options", and not in the usage of each
// command. The shell still completes them.
func TestTheFlagsOfAllCommandsAreListedOnce(t *testing.T) {
	t.Parallel()
	root := newRootCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
	eachCommand(root, func(cmd *cobra.Command) {
		var out strings.Builder
		cmd.SetOut(&out)
		if err := cmd.Usage(); err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"--kubeconfig", "--as-group", "--v ", "Global Flags"} {
			if strings.Contains(out.String(), flag) {
				t.Errorf("%s: got a usage with %s", cmd.CommandPath(), flag)
			}
		}
		if !strings.Contains(out.String(), `"lanyard options"`) {
			t.Errorf("%s: got a usage that does not name lanyard options", cmd.CommandPath())
		}
	})
	code, out, errOut := run(t, "lanyard", "options")
	for _, flag := range []string{"--kubeconfig", "--as-group", "--namespace", "-v, --v"} {
		if !strings.Contains(out, flag) || code != command.ExitOK || errOut != "" {
			t.Errorf("options: got %d, %q and %q, want the flag %s", code, out, errOut, flag)
		}
	}
	if _, out, _ := run(t, "lanyard", cobra.ShellCompRequestCmd, "check", "--kubec"); !strings.Contains(out, "--kubeconfig") {
		t.Errorf("completion: got %q, want --kubeconfig", out)
	}
}
