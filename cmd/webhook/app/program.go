// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

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

// program is the parts put together: what is watched, what is served, and what
// readiness depends on.
type program struct {
	certificate          certificateSource
	accounts, namespaces *lookup.Lookup
	reviews              *http.Server
	metrics, health      *http.Server // nil where there is none
}

// certificateSource is where the serving certificate comes from.
type certificateSource interface {
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	Start(ctx context.Context) error
	Check(r *http.Request) error
}

func newCertificateSource(config *rest.Config, o *options.Completed, onChange func(notAfter time.Time), log logr.Logger) (certificateSource, error) {
	if o.CertificateSource == options.FromFiles {
		return certificate.NewFiles(o.TLSCertFile, o.TLSPrivateKeyFile, onChange, log)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return certificate.NewSelfManaged(certificate.SelfManagedOptions{
		Client:          client,
		SecretNamespace: o.CertificateSecretNamespace, SecretName: o.CertificateSecretName,
		WebhookConfigurationName: o.WebhookConfigurationName,
		DNSNames:                 o.CertificateDNSNames,
		CADuration:               o.CADuration, CertificateDuration: o.CertificateDuration,
		OnChange: onChange, Logger: log,
	}), nil
}

func newProgram(draining <-chan struct{}, config *rest.Config, o *options.Completed, log logr.Logger) (*program, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	recorder, err := metrics.New(registry)
	if err != nil {
		return nil, err
	}
	var p program
	if p.certificate, err = newCertificateSource(config, o, recorder.SetCertificateExpiry, log.WithName("certificate")); err != nil {
		return nil, err
	}
	if p.accounts, p.namespaces, err = newLookups(config, o, recorder, log); err != nil {
		return nil, err
	}
	recorder.WatchServiceAccounts(func() (annotated, unannotated, unguarded int) {
		counts := p.accounts.Counts()
		return counts.Annotated, counts.Unannotated, counts.Unguarded
	})
	address := net.JoinHostPort(host(o.BindAddress), strconv.Itoa(o.SecurePort))
	p.reviews = newServer(address, closing(draining, reviewMux(o, &p, recorder, log)), &tls.Config{
		MinVersion: o.MinVersion, CipherSuites: o.CipherSuites, GetCertificate: p.certificate.GetCertificate,
	}, log.WithName("reviews"))
	if o.MetricsBindAddress != "0" {
		mux := http.NewServeMux()
		mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		p.metrics = newServer(o.MetricsBindAddress, mux, nil, log.WithName("metrics"))
	}
	if o.HealthProbeBindAddress != "0" {
		p.health = newServer(o.HealthProbeBindAddress, p.healthMux(draining, address), nil, log.WithName("health"))
	}
	return &p, nil
}

// host gives the host to listen on. For Go, 0.0.0.0 means IPv4 alone, and no
// host means whatever the machine has.
func host(bindAddress string) string {
	if net.ParseIP(bindAddress).IsUnspecified() {
		return ""
	}
	return bindAddress
}

// healthMux serves the probes. Alive is whoever answers; ready is who can do
// the work.
func (p *program) healthMux(draining <-chan struct{}, address string) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping},
		"/readyz": {
			"shutdown":        checkDraining(draining),
			"tls":             checkTLS(address),
			"certificate":     p.certificate.Check,
			"serviceaccounts": checkSynced(p.accounts),
			"namespaces":      checkSynced(p.namespaces),
		},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	return mux
}

// run runs all parts until ctx ends, or until one of them fails.
func (p *program) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, start := range []func(context.Context) error{p.certificate.Start, p.accounts.Start, p.namespaces.Start, p.freeMemory} {
		group.Go(func() error { return start(ctx) })
	}
	for _, server := range []*http.Server{p.reviews, p.metrics, p.health} {
		if server != nil {
			group.Go(func() error { return serve(ctx, server) })
		}
	}
	return group.Wait()
}

// freeMemory gives back what the first lists of all objects took, once they
// have come: of it, little is kept, and nothing so large comes again.
func (p *program) freeMemory(ctx context.Context) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for !p.accounts.HasSynced() || !p.namespaces.HasSynced() {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	debug.FreeOSMemory()
	return nil
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
		Identity: keys.IsIdentity,
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

// reviewMux serves a path for each kind of review.
func reviewMux(o *options.Completed, p *program, recorder *metrics.Recorder, log logr.Logger) http.Handler {
	cluster := injector.Cluster{
		Keys: &o.Keys, Defaults: &o.Defaults, Settings: &o.Settings,
		ServiceAccounts: p.accounts, Namespaces: p.namespaces,
	}
	mux := http.NewServeMux()
	for path, decider := range map[string]admission.Decider{
		mutatePodPath:              &injector.Pods{Cluster: cluster, Recorder: recorder},
		mutateServiceAccountPath:   &injector.Labels{Keys: &o.Keys, Expecter: p.accounts},
		validateServiceAccountPath: &injector.Validator{Cluster: cluster},
	} {
		mux.Handle(path, admission.NewHandler(decider, recorder, log.WithName("admission")))
	}
	return mux
}

func checkSynced(l *lookup.Lookup) healthz.Checker {
	return func(*http.Request) error {
		if !l.HasSynced() {
			return errors.New("not all are known yet")
		}
		return nil
	}
}
