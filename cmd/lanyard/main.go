// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command lanyard is the command line tool. As kubectl-lanyard it is a plugin:
// kubectl lanyard.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/lanyard-dev/lanyard/internal/cli"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The libraries log text of the cluster, and slog quotes it.
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	return cli.Run(ctx, os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
}
