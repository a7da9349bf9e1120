// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
	"github.com/lanyard-dev/lanyard/internal/webhook/servingcert"
)

// metricsPath is where the metrics are.
const metricsPath = "/metrics"

// program holds the parts of lanyard-webhook.
type program struct {
	certificate     certificateSource
	serviceAccounts *metadatacache.Cache
	namespaces      *metadatacache.Cache
	injection       atomic.Pointer[injection]
	reviews         *http.Server
	serving         atomic.Bool                   // whether reviews accepts connections
	others          []func(context.Context) error // the parts that run until their context is done
}

// injection holds the state that a reload of --config replaces.
type injection struct {
	*settings.Settings
	handlers map[string]http.Handler
}

// certificateSource provides the serving certificate.
type certificateSource interface {
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	// Ready reports whether GetCertificate returns a certificate.
	Ready() bool
	Start(ctx context.Context) error
	// Check is a health check of the certificate.
	Check(r *http.Request) error
}

func newCertificateSource(config *rest.Config, o *options.Completed, onChange func(notAfter time.Time), log logr.Logger) (certificateSource, error) {
	if o.CertificateSource == options.FromFiles {
		return servingcert.NewFiles(o.TLSCertFile, o.TLSPrivateKeyFile, onChange, log)
	}
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	return servingcert.NewSelfManaged(servingcert.SelfManagedOptions{
		Client:          client,
		SecretNamespace: o.CertificateSecretNamespace, SecretName: o.CertificateSecretName,
		WebhookConfigurationName: o.WebhookConfigurationName,
		Hosts:                    o.CertificateDNSNames,
		CADuration:               o.CADuration, CertificateDuration: o.CertificateDuration,
		OnChange: onChange, Logger: log,
	}), nil
}

func newClient(config *rest.Config) (dynamic.Interface, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return client, nil
}

// newTLSConfig returns the TLS settings of a server with the serving certificate.
func newTLSConfig(o *options.Completed, certificate certificateSource) *tls.Config {
	return &tls.Config{MinVersion: o.MinVersion, CipherSuites: o.CipherSuites, GetCertificate: certificate.GetCertificate}
}

// newProgram builds all parts; run starts them.
func newProgram(draining <-chan struct{}, config *rest.Config, o *options.Completed, s *settings.Settings, log logr.Logger) (*program, error) {
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
	if p.serviceAccounts, p.namespaces, err = newCaches(config, s.Keys, recorder, log); err != nil {
		return nil, err
	}
	budget := admission.NewBudget()
	inject := func(s *settings.Settings) { p.inject(s, budget, recorder, log) }
	if o.ConfigFile == "" {
		inject(s)
	} else {
		file, err := p.watchConfig(o, s.Defaults.ReservedAudiences, inject, recorder, log.WithName("config"))
		if err != nil {
			return nil, err
		}
		p.others = append(p.others, file.Start)
	}
	recorder.WatchServiceAccounts(func() metrics.ServiceAccounts {
		return countServiceAccounts(p.serviceAccounts.All(), p.namespaces.All(), p.injection.Load().Settings)
	})
	recorder.WatchCache("serviceaccounts", p.serviceAccounts.Bytes)
	recorder.WatchCache("namespaces", p.namespaces.Bytes)
	if err := p.addServers(draining, config, o, registry, log); err != nil {
		return nil, err
	}
	return &p, nil
}

// addServers adds the servers of the reviews, the metrics and the probes.
func (p *program) addServers(draining <-chan struct{}, config *rest.Config, o *options.Completed, registry *prometheus.Registry, log logr.Logger) error {
	tlsConfig := newTLSConfig(o, p.certificate)
	var own []tls.Certificate // for the program's connection to itself
	if o.ClientCAFile != "" {
		callers, err := httpserver.NewVerifier(o.ClientCAFile, o.ClientAllowedNames, log.WithName("callers"))
		if err != nil {
			return err
		}
		callers.Configure(tlsConfig)
		own = append(own, callers.ProbeCertificate())
		p.others = append(p.others, callers.Start)
	}
	address := net.JoinHostPort(host(o.BindAddress), strconv.Itoa(o.SecurePort))
	p.reviews = httpserver.New(address, httpserver.Closing(draining, reviewMux(p)), tlsConfig, httpserver.MaxReviewConnections, log.WithName("reviews"))
	// An API server closes an idle connection after 90 seconds. This side must not
	// close it first: a request may be on its way.
	p.reviews.IdleTimeout = 3 * time.Minute
	if o.MetricsBindAddress != "0" {
		server, err := newMetricsServer(config, o, registry, p.certificate, log.WithName("metrics"))
		if err != nil {
			return err
		}
		p.serveAtOnce(server)
	}
	if o.HealthProbeBindAddress != "0" {
		p.serveAtOnce(httpserver.New(o.HealthProbeBindAddress, p.healthMux(draining, address, own), nil, httpserver.MaxOtherConnections, log.WithName("health")))
	}
	return nil
}

// serveAtOnce adds a server that need not wait.
func (p *program) serveAtOnce(server *http.Server) {
	p.others = append(p.others, func(ctx context.Context) error {
		return httpserver.ListenAndServe(ctx, server, func() bool { return true })
	})
}

// newMetricsServer returns the server of the metrics. With --metrics-secure, it has
// the same certificate as the reviews, and the API server decides who may read them.
func newMetricsServer(config *rest.Config, o *options.Completed, registry *prometheus.Registry, certificate certificateSource, log logr.Logger) (*http.Server, error) {
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	var tlsConfig *tls.Config
	if o.MetricsSecure {
		client, err := newClient(config)
		if err != nil {
			return nil, err
		}
		handler = httpserver.Authorize(client, metricsPath, handler, log)
		tlsConfig = newTLSConfig(o, certificate)
	}
	mux := http.NewServeMux()
	mux.Handle(metricsPath, handler)
	return httpserver.New(o.MetricsBindAddress, mux, tlsConfig, httpserver.MaxOtherConnections, log), nil
}

// host returns the host to listen on. For Go, 0.0.0.0 means only IPv4, and an
// empty host means all IP families of the machine.
func host(bindAddress string) string {
	if net.ParseIP(bindAddress).IsUnspecified() {
		return ""
	}
	return bindAddress
}

func newCaches(config *rest.Config, keys *annotations.Keys, recorder *metrics.Recorder, log logr.Logger) (serviceAccounts, namespaces *metadatacache.Cache, err error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	opts := injector.ServiceAccountCacheOptions(client, keys)
	// 100,000 ServiceAccounts, of which 10,000 are annotated, take about 20 MiB.
	opts.MaxTotalBytes = cacheBytes()
	opts.Recorder = recorder
	opts.Logger = log.WithName("serviceaccounts")
	if serviceAccounts, err = metadatacache.New(opts); err != nil {
		return nil, nil, err
	}
	opts = injector.NamespaceCacheOptions(client, keys)
	opts.MaxTotalBytes = cacheBytes() / 4 // namespaces are few
	opts.Logger = log.WithName("namespaces")
	namespaces, err = metadatacache.New(opts)
	return serviceAccounts, namespaces, err
}

// cacheBytes returns the limit of the memory for ServiceAccounts: a quarter of
// GOMEMLIMIT, which the chart sets.
func cacheBytes() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit / 4
	}
	return 32 << 20
}

// reviewMux serves each kind of review on its own path.
func reviewMux(p *program) http.Handler {
	mux := http.NewServeMux()
	for path := range p.injection.Load().handlers {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			p.injection.Load().handlers[path].ServeHTTP(w, r)
		})
	}
	return mux
}

// inject makes the program inject by these settings, from the next request on.
func (p *program) inject(s *settings.Settings, budget *admission.Budget, recorder *metrics.Recorder, log logr.Logger) {
	config := injector.Config{Settings: s, ServiceAccounts: p.serviceAccounts, Namespaces: p.namespaces}
	p.injection.Store(&injection{
		Settings: s,
		handlers: injector.Handlers(config, p.serviceAccounts, budget, recorder, log.WithName("admission")),
	})
}

// watchConfig makes the program use changes of the file of --config: all of them, or
// none if there is a mistake.
func (p *program) watchConfig(o *options.Completed, reserved []string, inject func(*settings.Settings), recorder *metrics.Recorder, log logr.Logger) (*httpserver.Files, error) {
	file := httpserver.NewFiles(func(contents [][]byte) error {
		started := p.injection.Load() != nil
		reloaded, restart, err := o.Reload(contents[0], reserved)
		if err != nil {
			return err
		}
		inject(reloaded)
		if started {
			log.Info("Loaded the changed file of --config", "file", o.ConfigFile, "customProviders", len(reloaded.Keys.Providers)-len(provider.Builtin()), "mappings", len(reloaded.Mappings))
		}
		if len(restart) > 0 {
			log.Info("Some changed settings of the file of --config need a restart", "file", o.ConfigFile, "settings", restart)
		}
		return nil
	}, log, o.ConfigFile)
	file.Report = recorder.SetConfigReload
	err := file.Load()
	recorder.SetConfigReload(err)
	return file, err
}

// run runs all parts until ctx is done or one of them fails.
func (p *program) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, start := range append(p.others, p.certificate.Start, p.serviceAccounts.Start, p.namespaces.Start, p.freeMemory, p.serveReviews) {
		group.Go(func() error { return start(ctx) })
	}
	return group.Wait()
}

func (p *program) freeMemory(ctx context.Context) error {
	return metadatacache.FreeMemory(ctx, p.serviceAccounts, p.namespaces)
}
