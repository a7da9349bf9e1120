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

// run runs a command line and returns its exit code and its output.
func run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	code = Run(t.Context(), args, streams)
	return code, stdout.String(), stderr.String()
}

func TestMistakesInTheCommandLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a mistyped command":    {[]string{"lanyard", "exlain"}, "error: unknown command \"exlain\"; did you mean explain?\nSee 'lanyard --help' for usage.\n"},
		"swapped letters":       {[]string{"lanyard", "stauts"}, "error: unknown command \"stauts\"; did you mean status?\nSee 'lanyard --help' for usage.\n"},
		"a subcommand":          {[]string{"lanyard", "label", "serviceacounts"}, "error: unknown command \"serviceacounts\"; did you mean serviceaccounts?\nSee 'lanyard label --help' for usage.\n"},
		"an unknown command":    {[]string{"lanyard", "frobnicate"}, "error: unknown command \"frobnicate\"\nSee 'lanyard --help' for usage.\n"},
		"an unknown flag":       {[]string{"lanyard", "--frobnicate"}, "error: unknown flag: --frobnicate\nSee 'lanyard --help' for usage.\n"},
		"an argument too much":  {[]string{"lanyard", "check", "shop"}, "error: unexpected argument \"shop\": lanyard check takes only flags\nSee 'lanyard check --help' for usage.\n"},
		"a file without a flag": {[]string{"lanyard", "inject", "app.yaml"}, "error: unexpected argument \"app.yaml\": name files with --filename\nSee 'lanyard inject --help' for usage.\n"},
		"a time to wait":        {[]string{"lanyard", "check", "--wait", "5s"}, "error: --wait 5s: the value of this flag needs an equals sign: --wait=5s\nSee 'lanyard check --help' for usage.\n"},
		"a kind of dry run":     {[]string{"lanyard", "label", "sa", "--dry-run", "server"}, "error: --dry-run server: the value of this flag needs an equals sign: --dry-run=server\nSee 'lanyard label serviceaccounts --help' for usage.\n"},
		"the value of a switch": {[]string{"lanyard", "status", "--stale", "false"}, "error: --stale false: the value of this flag needs an equals sign: --stale=false\nSee 'lanyard status --help' for usage.\n"},
		"a switch and a name":   {[]string{"lanyard", "trust", "aws", "cart", "--remove", "true"}, "error: --remove true: the value of this flag needs an equals sign: --remove=true\nSee 'lanyard trust aws --help' for usage.\n"},
		"a switch for all":      {[]string{"lanyard", "status", "--insecure-skip-tls-verify", "true"}, "error: --insecure-skip-tls-verify true: the value of this flag needs an equals sign: --insecure-skip-tls-verify=true\nSee 'lanyard status --help' for usage.\n"},
		"a plugin of kubectl":   {[]string{"/usr/bin/kubectl-lanyard", "--x"}, "error: unknown flag: --x\nSee 'kubectl lanyard --help' for usage.\n"},
		"a path of the program": {[]string{"/opt/kubectl-tools/lanyard", "--x"}, "error: unknown flag: --x\nSee 'lanyard --help' for usage.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, errOut := run(t, test.args...)
			if code != command.ExitFailed || errOut != test.want {
				t.Errorf("got %d and %q, want %d and %q", code, errOut, command.ExitFailed, test.want)
			}
		})
	}
}

// The libraries would ask an API server at http://localhost:8080.
func TestCommandsThatNeedAClusterSayThatThereIsNoKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, args := range []string{
		"check", "check --pre", "explain pod/x", "status", "label serviceaccounts", "trust aws x", "trust issuer",
		"token x --for aws", "migrate --from eks", "policies --diff", "inject --cluster -f -", "version",
	} {
		code, _, errOut := run(t, append([]string{"lanyard"}, strings.Fields(args)...)...)
		if want := "error: no kubeconfig: name a file with --kubeconfig or KUBECONFIG\n"; code != command.ExitFailed || errOut != want {
			t.Errorf("%s: got %d and %q, want %d and %q", args, code, errOut, command.ExitFailed, want)
		}
	}
}

// As kubectl, the program and the commands that only group others print their help.
func TestACommandThatGroupsOthersPrintsItsHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"lanyard"}, {"lanyard", "label"}} {
		code, out, errOut := run(t, args...)
		_, want, _ := run(t, append(args, "--help")...)
		if code != command.ExitOK || out != want || errOut != "" || !strings.Contains(out, "Available Commands:") {
			t.Errorf("%s: got %d, %q and %q, want the help", args, code, out, errOut)
		}
	}
}

// Every command has examples, and they can be pasted: their commands and flags
// exist.
func TestExamples(t *testing.T) {
	t.Parallel()
	root := newRootCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.HasSubCommands() || cmd == root {
			return
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s: want Short, Long and Example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if line = strings.TrimRight(line, "\n"); len(line) > 80 {
				t.Errorf("%s: %q is wider than a terminal of 80 columns", cmd.CommandPath(), line)
			}
		}
		for line := range strings.Lines(cmd.Example) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			line, filter, _ := strings.Cut(line, " | ")
			if cmd.Name() == "check" && strings.HasPrefix(filter, "jq ") && !strings.HasPrefix(filter, "jq '.findings[]") {
				t.Errorf("example %q: got %q, want a filter of .findings[]", line, filter)
			}
			line, _, _ = strings.Cut(line, " > ")
			args := strings.Fields(line)
			if args[0] != "lanyard" {
				t.Errorf("%s: example %q does not start with lanyard", cmd.CommandPath(), line)
				continue
			}
			fresh := newRootCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
			found, rest, err := fresh.Find(args[1:])
			if err != nil || found.CommandPath() != cmd.CommandPath() {
				t.Errorf("%s: example %q is of another command: %v", cmd.CommandPath(), line, err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("example %q: %v", line, err)
			} else if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("example %q: %v", line, err)
			}
		}
	})
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, child := range cmd.Commands() {
		eachCommand(child, do)
	}
}

func TestExamplesShowTheNameOfThePlugin(t *testing.T) {
	t.Parallel()
	root := newRootCommand(command.NewCLI("kubectl-lanyard", genericiooptions.NewTestIOStreamsDiscard()))
	eachCommand(root, func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			if strings.HasPrefix(line, "  lanyard") {
				t.Errorf("%s: %q", cmd.CommandPath(), line)
			}
		}
	})
}
