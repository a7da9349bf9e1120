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
)

// NewCommand returns the command with its flags and subcommands. The caller must
// print the error that it returns.
func NewCommand() *cobra.Command {
	o := options.New()
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
			if err := o.LoadConfig(cmd.Flags(), os.ReadFile); err != nil {
				return err
			}
			completed, err := o.Complete()
			if err != nil {
				return err
			}
			log := completed.NewLogger(os.Stderr)
			redirectLogs(log)
			ctx, draining, stop := signals(cmd.Context(), o.ShutdownDelay, log)
			defer stop()
			return run(ctx, draining, completed, log)
		},
	}
	groups := o.Flags()
	groups.FlagSet("General").Bool("version", false, "Print the version and exit.") // read by cobra
	for _, fs := range groups.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	width, _, err := term.TerminalSize(cmd.OutOrStdout())
	if err != nil {
		width = 0 // not a terminal: lines are not wrapped
	}
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	cmd.AddCommand(newCheckCommand(width))
	return cmd
}

// redirectLogs makes the libraries use log.
func redirectLogs(log logr.Logger) {
	klog.SetLogger(log)
	ctrllog.SetLogger(log)
}

func run(ctx context.Context, draining <-chan struct{}, o *options.Completed, log logr.Logger) error {
	config, err := restConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	audiences, err := apiserverAudiences(ctx, config, log)
	if err != nil {
		return err
	}
	settings, err := o.Settings(audiences)
	if err != nil {
		return err
	}
	warnOfReservedAudiences(settings, log)
	program, err := newProgram(draining, config, o, settings, log)
	if err != nil {
		return err
	}
	log.Info("Serving", "reviews", program.reviews.Addr, "metrics", o.MetricsBindAddress, "health", o.HealthProbeBindAddress)
	if err := program.run(ctx); err != nil {
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
