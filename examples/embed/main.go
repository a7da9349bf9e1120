// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command embed is an operator that runs Lanyard's webhooks in its own manager. It
// serves them on port 9443 with the certificate in
// /tmp/k8s-webhook-server/serving-certs, as controller-runtime does by default, its
// metrics on port 8080, and its probes on port 8081.
package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
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
	mgr, err := newManager(config, webhook.NewServer(ctrlwebhook.Options{}), ":8080", ":8081")
	if err != nil {
		return err
	}
	// The operator's own controllers go here.
	return mgr.Start(ctrl.SetupSignalHandler())
}

// newManager returns a manager with Lanyard's webhooks. It serves the metrics and the probes
// at these addresses.
func newManager(config *rest.Config, webhooks ctrlwebhook.Server, metricsAddress, probesAddress string) (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		WebhookServer: webhooks,
		// The manager's own servers have no option for limits: the ports below replace them.
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		return nil, err
	}
	if err := webhook.AddToManager(mgr, webhook.Options{}); err != nil {
		return nil, err
	}
	exposed := http.NewServeMux()
	exposed.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	if err := mgr.Add(webhook.NewPort("metrics", metricsAddress, exposed)); err != nil {
		return nil, err
	}
	probes := http.NewServeMux()
	probes.Handle("/healthz", healthz.CheckHandler{Checker: healthz.Ping})
	probes.Handle("/readyz", healthz.CheckHandler{Checker: webhooks.StartedChecker()})
	return mgr, mgr.Add(webhook.NewPort("probes", probesAddress, probes))
}
