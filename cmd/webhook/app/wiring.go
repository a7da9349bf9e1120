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
	"sync/atomic"
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
	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/injector"
	"github.com/lanyard-dev/lanyard/internal/metadatacache"
	"github.com/lanyard-dev/lanyard/internal/metrics"
	"github.com/lanyard-dev/lanyard/internal/onewrite"
	"github.com/lanyard-dev/lanyard/internal/servingcert"
	"github.com/lanyard-dev/lanyard/internal/socketstore"
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
	accounts, namespaces *metadatacache.Lookup
	reviews              *http.Server
	socketStore          string       // path of its unix socket, empty where there is none
	serving              atomic.Bool  // whether reviews accepts connections
	metrics, health      *http.Server // nil where there is none
	log                  logr.Logger
}

// certificateSource is where the serving certificate comes from.
type certificateSource interface {
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	Start(ctx context.Context) error
	Check(r *http.Request) error
}

func newCertificateSource(config *rest.Config, o *options.Completed, onChange func(notAfter time.Time), log logr.Logger) (certificateSource, error) {
	if o.CertificateSource == options.FromFiles {
		return servingcert.NewFiles(o.TLSCertFile, o.TLSPrivateKeyFile, onChange, log)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return servingcert.NewSelfManaged(servingcert.SelfManagedOptions{
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
	p := program{socketStore: o.SocketStore, log: log}
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
	// Longer than the 90 seconds after which an apiserver closes a connection
	// that it does not use: one that this side closes may be just then in use.
	p.reviews.IdleTimeout = 3 * time.Minute
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
			"tls":             onceServing(&p.serving, checkTLS(address)),
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
	group.Go(func() error { return p.serveReviews(ctx) })
	for _, server := range []*http.Server{p.metrics, p.health} {
		if server != nil {
			group.Go(func() error { return listenAndServe(ctx, server) })
		}
	}
	return group.Wait()
}

// serveReviews listens at once, so that connections may wait, and accepts them
// when they can be served.
func (p *program) serveReviews(ctx context.Context) error {
	listener, err := p.listen(ctx)
	if err != nil {
		return err
	}
	listener = onewrite.Use(p.reviews, listener)
	begun := time.Now()
	return serveOnce(ctx, p.reviews, listener, func() bool { return p.canServe(time.Since(begun)) }, &p.serving)
}

func (p *program) listen(ctx context.Context) (net.Listener, error) {
	if p.socketStore == "" {
		return new(net.ListenConfig).Listen(ctx, "tcp", p.reviews.Addr)
	}
	return socketstore.Listen(ctx, p.socketStore, "tcp", p.reviews.Addr, p.log.WithName("socketstore"))
}

// syncPatience is how long reviews wait for the lookups. Without them each has
// to ask the apiserver; but where they never come, as without the right to list,
// a review should say so, within the 5 seconds that its sender waits.
const syncPatience = 2 * time.Second

// canServe says whether a review that comes now is answered: there has to be a
// certificate, and the lookups have to be there, unless they were waited for
// long enough.
func (p *program) canServe(waited time.Duration) bool {
	certificate, err := p.certificate.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil || certificate == nil {
		return false
	}
	return p.synced() || waited >= syncPatience
}

const (
	// freeInterval is how often freeMemory looks whether there is something to
	// give back.
	freeInterval = 2 * time.Second
	// freeAfter is how many objects leave garbage behind that is worth a
	// collection, of some milliseconds: a few megabytes.
	freeAfter = 10_000
)

// freeMemory gives back what the first lists of all objects took, once they
// have come, and what many changes took later. Left to itself, the collector
// waits until there is as much garbage as there is of everything else.
func (p *program) freeMemory(ctx context.Context) error {
	ticker := time.NewTicker(freeInterval)
	defer ticker.Stop()
	due, again := uint64(0), false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !p.synced() {
			continue
		}
		received := p.accounts.Received() + p.namespaces.Received()
		if received < due && !again {
			continue
		}
		// What was received last may be let go only now: it takes a second time.
		if again = received >= due; again {
			due = received + freeAfter
		}
		debug.FreeOSMemory()
	}
}

// synced says whether all accounts and namespaces have come once.
func (p *program) synced() bool { return p.accounts.HasSynced() && p.namespaces.HasSynced() }

func newLookups(config *rest.Config, o *options.Completed, recorder *metrics.Recorder, log logr.Logger) (accounts, namespaces *metadatacache.Lookup, err error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("client of the API server: %w", err)
	}
	keys := o.Keys
	accounts, err = metadatacache.New(metadatacache.Options{
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
	namespaces, err = metadatacache.New(metadatacache.Options{
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

func checkSynced(l *metadatacache.Lookup) healthz.Checker {
	return func(*http.Request) error {
		if !l.HasSynced() {
			return errors.New("not all are known yet")
		}
		return nil
	}
}
