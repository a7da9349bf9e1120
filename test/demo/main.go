// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows Lanyard at work on a real kube-apiserver: it creates the
// pods of examples/, shows what they were given and checks it. It runs in the
// repository's root, after the webhook and the control plane were built.
//
// With KEEP=1 in the environment it leaves everything running until Ctrl-C.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	// A closed pipe or terminal ends the demo as Ctrl-C does: in order.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	ctrl.SetLogger(logr.Discard()) // envtest's own log
	if err := run(ctx, newPrinter(os.Stdout, os.Getenv), os.Getenv("KEEP")); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
