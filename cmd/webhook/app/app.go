// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app puts lanyard-webhook together and runs it.
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

	"github.com/lanyard-dev/lanyard/cmd/webhook/app/options"
)

// NewCommand gives the command with its flags. Its error is for the caller to
// print.
func NewCommand() *cobra.Command {
	o := options.New()
	cmd := &cobra.Command{
		Use:           "lanyard-webhook",
		Short:         "Give pods short-lived cloud identities.",
		Long:          "lanyard-webhook is a mutating admission webhook. It gives the pods of annotated service accounts\nrotating tokens and the environment that the AWS, Azure and Google SDKs look for.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.LoadConfig(cmd.Flags()); err != nil {
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
	for _, fs := range groups.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	width, _, err := term.TerminalSize(cmd.OutOrStdout())
	if err != nil {
		width = 0 // no terminal: lines as long as they are
	}
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	cmd.AddCommand(newCheckCommand(width), newKeepSocketCommand(width))
	return cmd
}

// redirectLogs hands over what the libraries log.
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
	o.Defaults.ReservedAudiences = audiences
	warnOfReservedAudiences(&o.Defaults, log)
	program, err := newProgram(draining, config, o, log)
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
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no --kubeconfig given, and not inside of a cluster: %w", err)
		}
		return tuned(config), nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return tuned(config), nil
}

// tuned leaves it to the apiserver's priority and fairness to slow the client
// down: a queue on this side would hold up pods.
func tuned(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.UserAgent = "lanyard-webhook"
	return config
}
