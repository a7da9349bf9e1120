// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command embed is an operator that brings Lanyard's webhooks along in its own
// manager. It serves them on port 9443 with the certificate in
// /tmp/k8s-webhook-server/serving-certs, as controller-runtime does by default.
package main

import (
	"fmt"
	"os"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lanyard-dev/lanyard/pkg/webhook"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func run() error {
	ctrl.SetLogger(klog.Background())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	// The webhook server of controller-runtime has no limits against slow clients.
	mgr, err := ctrl.NewManager(config, ctrl.Options{WebhookServer: webhook.NewServer(ctrlwebhook.Options{})})
	if err != nil {
		return err
	}
	// The operator's own controllers go here.
	if err := webhook.AddToManager(mgr, webhook.Options{}); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
