// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line tool: lanyard, or kubectl lanyard. Each larger command has a
// package of its own, with its decision, its flags and its output; policies and version are here.
package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/check"
	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/internal/cli/migrate"
	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/internal/version"
)

// Run runs the command of args, which begin with the program's name. It prints
// the error, if any, and returns the exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	return execute(ctx, command.NewCLI(args[0], streams), args[1:])
}

func execute(ctx context.Context, c *command.CLI, args []string) int {
	root := newRootCommand(c)
	if len(args) == 0 {
		args = []string{"--help"}
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return c.Exit(err, cmd.CommandPath())
}

const rootHelp = `lanyard looks into a cluster that runs the Lanyard webhook. It needs nothing
but access to the API server, with the same kubeconfig and flags as kubectl.

Exit codes: 0 if all is well, 1 if a command found a problem, 2 if it could not
look, for example because a right is missing or the command line is wrong.`

// newRootCommand returns the command with all of its subcommands.
func newRootCommand(c *command.CLI) *cobra.Command {
	var verbosity int
	root := &cobra.Command{
		Use:   "lanyard",
		Short: "See and manage the cloud credentials of pods.",
		Long:  rootHelp,
		// Not SetVersionTemplate, as in cmd/webhook/app.
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: c.Name},
		// After this point, an error is not a mistake in the command line.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			c.Started = true
			return command.LogTo(c.ErrOut, verbosity)
		},
	}
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.ErrOut)
	root.SetUsageFunc(c.Usage(root.UsageFunc()))
	c.Flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().IntVarP(&verbosity, "v", "v", 0, "Log verbosity, as for kubectl. 6 logs each request, 7 also its headers without credentials.")
	// The errors are for flags that do not exist.
	_ = root.RegisterFlagCompletionFunc("namespace", c.CompleteNamespaces())
	_ = root.RegisterFlagCompletionFunc("context", c.CompleteContexts)
	root.AddCommand(
		check.NewCommand(c),
		workload.NewExplainCommand(c),
		inject.NewCommand(c),
		migrate.NewLabelCommand(c),
		migrate.NewCommand(c),
		c.NewOptionsCommand(),
		newPoliciesCommand(c),
		workload.NewStatusCommand(c),
		cloud.NewTokenCommand(c),
		cloud.NewTrustCommand(c),
		newVersionCommand(c),
	)
	c.Finish(root)
	return root
}
