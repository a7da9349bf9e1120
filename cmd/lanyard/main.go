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
	// Let a second interrupt end the program, because a request may outlast the context.
	context.AfterFunc(ctx, stop)
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // unless the user asks for a log
	return cli.Run(ctx, os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
}
