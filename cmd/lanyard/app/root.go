// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/version"
)

// Run runs the command of args, which begin with the program's name. It prints
// the error, if any, and returns the exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	c := newCLI(args[0], streams)
	root := newRootCommand(c)
	root.SetArgs(args[1:])
	cmd, err := root.ExecuteContextC(ctx)
	_, isUsage := errors.AsType[usageError](err)
	switch {
	case err == nil:
		return ExitOK
	case isUsage || !c.started:
		c.note("%s: %v\nRun '%s --help' for usage.", c.name, err, cmd.CommandPath())
		return ExitUsage
	case !errors.Is(err, errFound):
		c.note("%s: %v", c.name, err)
	}
	return ExitFound
}

const rootHelp = `lanyard looks into a cluster that runs the Lanyard webhook. It needs nothing
but access to the API server, with the same kubeconfig and flags as kubectl.

Exit codes: 0 if all is well, 1 if a command found a problem or failed, 2 if
the command line is wrong.`

// newRootCommand returns the command with all of its subcommands.
func newRootCommand(c *CLI) *cobra.Command {
	root := &cobra.Command{
		Use:   "lanyard",
		Short: "See and manage the cloud credentials of pods.",
		Long:  rootHelp,
		// Not SetVersionTemplate, as in cmd/webhook/app.
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: c.name},
		// After this point, an error is not a mistake in the command line.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			c.started = true
			return nil
		},
	}
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.ErrOut)
	root.SetUsageFunc(c.usage(root.UsageFunc()))
	c.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&c.prefix, "annotation-prefix", c.prefix, "Prefix of every annotation and label, with its slash. Without it, the prefix of the webhook.")
	// The errors are for flags that do not exist.
	_ = root.RegisterFlagCompletionFunc("namespace", c.completeNamespaces)
	_ = root.RegisterFlagCompletionFunc("context", c.completeContexts)
	root.AddCommand(
		newCheckCommand(c),
		newExplainCommand(c),
		newInjectCommand(c),
		newLabelCommand(c),
		newMigrateCommand(c),
		newProviderCommand(c),
		newRestartCommand(c),
		newStatusCommand(c),
		newTokenCommand(c),
		newTrustCommand(c),
	)
	c.finish(root)
	return root
}
