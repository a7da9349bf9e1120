// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows Lanyard on a real kube-apiserver. It creates the pods of
// examples/, prints what Lanyard added to them and checks it. Run it in the
// root of the repository, after building the webhook and the control plane.
//
// With KEEP=1 in the environment it keeps everything running until Ctrl-C.
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
	// A closed pipe or terminal stops the demo in the same way as Ctrl-C.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	ctrl.SetLogger(logr.Discard()) // envtest's own log
	if err := run(ctx, newPrinter(os.Stdout, os.Getenv), os.Getenv("KEEP")); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
