// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line tool: lanyard, or kubectl lanyard. Each command has a
// package of its own, with its decision, its flags and its output.
package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/check"
	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/explain"
	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/internal/cli/label"
	"github.com/lanyard-dev/lanyard/internal/cli/migrate"
	"github.com/lanyard-dev/lanyard/internal/cli/provider"
	"github.com/lanyard-dev/lanyard/internal/cli/status"
	"github.com/lanyard-dev/lanyard/internal/version"
)

// Run runs the command of args, which begin with the program's name. It prints
// the error, if any, and returns the exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	c := command.NewCLI(args[0], streams)
	root := newRootCommand(c)
	root.SetArgs(args[1:])
	cmd, err := root.ExecuteContextC(ctx)
	_, isUsage := errors.AsType[command.UsageError](err)
	switch {
	case err == nil:
		return command.ExitOK
	case isUsage || !c.Started:
		c.Note("%s: %v", c.Name, err)
		c.Note("Run '%s --help' for usage.", cmd.CommandPath())
		return command.ExitUsage
	case !errors.Is(err, command.ErrFound):
		c.Note("%s: %v", c.Name, err)
	}
	return command.ExitFound
}

const rootHelp = `lanyard looks into a cluster that runs the Lanyard webhook. It needs nothing
but access to the API server, with the same kubeconfig and flags as kubectl.

Exit codes: 0 if all is well, 1 if a command found a problem or failed, 2 if
the command line is wrong.`

// newRootCommand returns the command with all of its subcommands.
func newRootCommand(c *command.CLI) *cobra.Command {
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
			return nil
		},
	}
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.ErrOut)
	root.SetUsageFunc(c.Usage(root.UsageFunc()))
	c.Flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&c.Prefix, "annotation-prefix", c.Prefix, "Prefix of every annotation and label, with its slash. Without it, the prefix of the webhook.")
	// The errors are for flags that do not exist.
	_ = root.RegisterFlagCompletionFunc("namespace", c.CompleteNamespaces())
	_ = root.RegisterFlagCompletionFunc("context", c.CompleteContexts)
	root.AddCommand(
		check.NewCommand(c),
		explain.NewCommand(c),
		inject.NewCommand(c),
		label.NewCommand(c),
		migrate.NewCommand(c),
		provider.NewCommand(c),
		status.NewRestartCommand(c),
		status.NewCommand(c),
		cloud.NewTokenCommand(c),
		cloud.NewTrustCommand(c),
	)
	c.Finish(root)
	return root
}
