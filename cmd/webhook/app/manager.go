// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lanyard-dev/lanyard/cmd/webhook/app/options"
	"github.com/lanyard-dev/lanyard/pkg/admission"
	"github.com/lanyard-dev/lanyard/pkg/certificate"
	"github.com/lanyard-dev/lanyard/pkg/injector"
	"github.com/lanyard-dev/lanyard/pkg/lookup"
	"github.com/lanyard-dev/lanyard/pkg/metrics"
)

// The paths that reviews are served on.
const (
	mutatePodPath              = "/mutate-v1-pod"
	mutateServiceAccountPath   = "/mutate-v1-serviceaccount"
	validateServiceAccountPath = "/validate-v1-serviceaccount"
)

// shutdownTimeout is how long requests in flight may take to finish. It is
// longer than the apiserver waits for any of them.
const shutdownTimeout = 35 * time.Second

// newManager puts the parts together: what is watched, what is served, and
// what readiness depends on.
func newManager(draining <-chan struct{}, config *rest.Config, o *options.Completed, log logr.Logger) (ctrl.Manager, error) {
	recorder, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	files, err := certificate.NewFiles(o.TLSCertFile, o.TLSPrivateKeyFile, recorder.SetCertificateExpiry)
	if err != nil {
		return nil, err
	}
	// A mux of our own: the server's would count each request a second time.
	mux := http.NewServeMux()
	server := newServer(o, files, mux)
	timeout := shutdownTimeout
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Logger:                  log,
		Metrics:                 metricsserver.Options{BindAddress: o.MetricsBindAddress},
		HealthProbeBindAddress:  o.HealthProbeBindAddress,
		GracefulShutdownTimeout: &timeout,
	})
	if err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	accounts, namespaces, err := newLookups(config, o, recorder, log)
	if err != nil {
		return nil, err
	}
	recorder.WatchServiceAccounts(func() (annotated, unannotated, unguarded int) {
		counts := accounts.Counts()
		return counts.Annotated, counts.Unannotated, counts.Unguarded
	})
	handle(mux, o, accounts, namespaces, recorder, log)
	return manager, errors.Join(
		manager.Add(files), manager.Add(accounts), manager.Add(namespaces), manager.Add(server),
		// Alive is whoever answers; ready is who can do the work.
		manager.AddHealthzCheck("ping", healthz.Ping),
		manager.AddReadyzCheck("shutdown", checkDraining(draining)),
		manager.AddReadyzCheck("tls", server.StartedChecker()),
		manager.AddReadyzCheck("certificate", files.Check),
		manager.AddReadyzCheck("serviceaccounts", checkSynced(accounts)),
		manager.AddReadyzCheck("namespaces", checkSynced(namespaces)),
	)
}

func newServer(o *options.Completed, files *certificate.Files, mux *http.ServeMux) webhook.Server {
	host := o.BindAddress
	if net.ParseIP(host).IsUnspecified() {
		// For Go, 0.0.0.0 means IPv4 alone, and no host means whatever the
		// machine has.
		host = ""
	}
	return webhook.NewServer(webhook.Options{
		Host:       host,
		WebhookMux: mux,
		Port:       o.SecurePort,
		TLSOpts: []func(*tls.Config){func(config *tls.Config) {
			config.MinVersion = o.MinVersion
			config.CipherSuites = o.CipherSuites
			config.GetCertificate = files.GetCertificate
		}},
	})
}

func newLookups(config *rest.Config, o *options.Completed, recorder *metrics.Recorder, log logr.Logger) (accounts, namespaces *lookup.Lookup, err error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("client of the API server: %w", err)
	}
	keys := o.Keys
	accounts, err = lookup.New(lookup.Options{
		Client:   client,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"},
		Prefix:   keys.Prefix,
		MaxBytes: keys.MaxServiceAccountBytes(),
		Identity: func(key string) bool { return keys.AskForIdentity(map[string]string{key: ""}) },
		Recorder: recorder,
		Logger:   log.WithName("serviceaccounts"),
	})
	if err != nil {
		return nil, nil, err
	}
	namespaces, err = lookup.New(lookup.Options{
		Client:   client,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Prefix:   keys.Prefix,
		Logger:   log.WithName("namespaces"),
	})
	return accounts, namespaces, err
}

// handle serves a path for each kind of review.
func handle(mux *http.ServeMux, o *options.Completed, accounts, namespaces *lookup.Lookup, recorder *metrics.Recorder, log logr.Logger) {
	cluster := injector.Cluster{
		Keys: &o.Keys, Defaults: &o.Defaults, Settings: &o.Settings,
		ServiceAccounts: accounts, Namespaces: namespaces,
	}
	for path, decider := range map[string]admission.Decider{
		mutatePodPath:              &injector.Pods{Cluster: cluster, Recorder: recorder},
		mutateServiceAccountPath:   &injector.Labels{Keys: &o.Keys, Expecter: accounts},
		validateServiceAccountPath: &injector.Validator{Cluster: cluster},
	} {
		mux.Handle(path, admission.NewHandler(decider, recorder, log.WithName("admission")))
	}
}

func checkSynced(l *lookup.Lookup) healthz.Checker {
	return func(*http.Request) error {
		if !l.HasSynced() {
			return errors.New("not all are known yet")
		}
		return nil
	}
}
