// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app holds the commands of lanyard-webhook and connects its parts.
package app

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/version"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// NewCommand returns the command with its flags and subcommands. The caller must print the
// error that Execute returns.
func NewCommand(args []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lanyard-webhook",
		Short: "Give pods short-lived cloud credentials.",
		Long:  "lanyard-webhook is a mutating admission webhook. It gives the pods of annotated ServiceAccounts rotating\ntokens and the environment variables that the AWS, Azure and Google SDKs read.",
		// SetVersionTemplate is not used: with text/template the linker keeps unused
		// methods, and the binary grows by 4 MiB.
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, _, err := load(args, os.ReadFile, nil)
			if err != nil {
				return err
			}
			log := o.NewLogger(os.Stderr)
			redirectLogs(log)
			ctx, draining, stop := signals(cmd.Context(), o.ShutdownDelay, log)
			defer stop()
			return run(ctx, draining, args, o, log)
		},
	}
	cmd.SetArgs(args)
	// Cobra parses the flags for --help and for errors about flags; load reads their values.
	groups := options.New().Flags()
	groups.FlagSet("General").Bool("version", false, "Print the version and exit.")
	for _, fs := range groups.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	width, _, err := term.TerminalSize(cmd.OutOrStdout())
	if err != nil {
		width = 0 // not a terminal: lines are not wrapped
	}
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	cmd.AddCommand(newCheckCommand(width), newVerifyCommand(width))
	return cmd
}

// redirectLogs makes the libraries log to log.
func redirectLogs(log logr.Logger) {
	klog.SetLogger(log)
	ctrllog.SetLogger(log)
}

// load returns the options and settings from the arguments and the file of --config. It runs
// at startup and after each change of the file. reserved lists the known audiences of the
// API server.
func load(args []string, readFile func(name string) ([]byte, error), reserved []string) (*options.Options, *annotations.Settings, error) {
	o, err := options.Load(args, readFile)
	if err != nil {
		return nil, nil, err
	}
	s, err := o.Complete(reserved)
	return o, s, err
}

// run serves until ctx is done.
func run(ctx context.Context, draining <-chan struct{}, args []string, o *options.Options, log logr.Logger) error {
	config, err := restConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	audiences, err := apiserverAudiences(ctx, config, log)
	if err != nil {
		return err
	}
	p := &program{args: args, options: o, reserved: audiences, draining: draining, log: log}
	if err := p.build(config); err != nil {
		return err
	}
	log.Info("Serving", "reviews", p.reviews.Addr, "metrics", o.MetricsBindAddress, "health", o.HealthProbeBindAddress)
	if err := p.run(ctx); err != nil {
		return err
	}
	log.Info("Stopped")
	return nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	load, problem := rest.InClusterConfig, "--kubeconfig: got none, and the program does not run in a cluster"
	if kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
		problem = "--kubeconfig"
	}
	config, err := load()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", problem, err)
	}
	config.QPS = -1 // a limit would delay pods; the API server limits requests by priority and fairness
	config.UserAgent = "lanyard-webhook"
	return config, nil
}
