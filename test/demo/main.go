// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows Lanyard on a real cluster. It creates the pods of examples/,
// prints Lanyard's additions to them and checks these. Run it in the root of the
// repository.
//
// Without flags it starts a control plane and the webhook itself, after "make build
// controlplane". With KEEP=1 in the environment it keeps them running until Ctrl-C.
//
// With --kubeconfig it uses a cluster that Lanyard is installed on. "make quickstart"
// does that with a kind cluster, and "make quickstart MODE=policies" with --policies.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	var o options
	// controller-runtime adds --kubeconfig to the default flag set.
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of a cluster that Lanyard is installed on; by default the demo starts its own")
	flags.BoolVar(&o.policies, "policies", false, "the cluster of --kubeconfig has the policies of deploy/policies instead of the webhook")
	flags.StringVar(&o.image, "image", "", "`image` of test/demo/whoami, which the nodes have; if set, a pod prints what it got")
	_ = flags.Parse(os.Args[1:]) // it exits in case of an error
	o.keep = os.Getenv("KEEP")
	// A closed pipe or terminal stops the demo in the same way as Ctrl-C.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	ctrl.SetLogger(logr.Discard()) // envtest's own log
	if err := run(ctx, newPrinter(os.Stdout, os.Getenv), o); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
