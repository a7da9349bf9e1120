// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command certmanager runs cert-manager's controllers and cainjector in one
// process, for the tests of the cert-manager certificate mode: SelfSigned and
// CA issuers, Certificates, and the caBundle of webhook configurations. It has
// no leader election, no webhook and no ACME.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

// run runs the program until ctx ends.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cert-manager", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "Kubeconfig of a cluster administrator. Required.")
	crds := flags.String("crds", "", "Directory of CustomResourceDefinitions to install at start.")
	klog.InitFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig == "" || flags.NArg() > 0 {
		return fmt.Errorf("got --kubeconfig %q and arguments %q, want a kubeconfig and no arguments", *kubeconfig, flags.Args())
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1

	logger := klog.Background()
	ctrl.SetLogger(logger)
	ctx = klog.NewContext(ctx, logger)

	if *crds != "" {
		if err := installCRDs(config, *crds); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runControllers(ctx, *kubeconfig) })
	group.Go(func() error {
		if err := runCAInjector(ctx, config); err != nil {
			return fmt.Errorf("run cainjector: %w", err)
		}
		return nil
	})
	return group.Wait()
}
