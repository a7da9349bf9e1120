// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
	"github.com/lanyard-dev/lanyard/internal/webhook/servingcert"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// metricsPath is the path of the metrics.
const metricsPath = "/metrics"

// maxScrapes limits the scrapes at a time.
const maxScrapes = 4

// program holds the parts of lanyard-webhook.
type program struct {
	args     []string
	options  *options.Options // of the arguments, at startup
	reserved []string         // the audiences of the API server
	draining <-chan struct{}
	log      logr.Logger

	client   dynamic.Interface
	registry *prometheus.Registry
	recorder *metrics.Recorder

	certificate certificateSource
	webhooks    *injector.Webhooks
	injection   atomic.Pointer[injection]
	reviews     *http.Server
	serving     atomic.Bool                   // whether reviews accepts connections
	others      []func(context.Context) error // the parts that run until their context is done
}

// injection holds the state that a reload of --config replaces.
type injection struct {
	settings *annotations.Settings
	handlers map[string]http.Handler
}

// build makes all parts; run starts them.
func (p *program) build(config *rest.Config) (err error) {
	if p.client, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("create Kubernetes client: %w", err)
	}
	p.registry = prometheus.NewRegistry()
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if p.recorder, err = metrics.New(p.registry); err != nil {
		return err
	}
	if p.certificate, err = p.newCertificateSource(); err != nil {
		return err
	}
	caches, err := injector.Connect(config, p.recorder, p.log)
	if err != nil {
		return err
	}
	p.webhooks = injector.New(caches, p.recorder, p.log.WithName("admission"))
	if p.options.ConfigFile == "" {
		err = p.load(nil)
	} else {
		_, err = p.watchConfig()
	}
	if err != nil {
		return err
	}
	counts := recentCounts(p.webhooks.ServiceAccounts.All(), p.webhooks.Namespaces.All())
	p.recorder.WatchServiceAccounts(func() metrics.ServiceAccounts { return counts(p.injection.Load().settings) })
	p.recorder.WatchCache("serviceaccounts", p.webhooks.ServiceAccounts.Bytes)
	p.recorder.WatchCache("namespaces", p.webhooks.Namespaces.Bytes)
	return p.addServers()
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

func (p *program) newCertificateSource() (certificateSource, error) {
	log := p.log.WithName("certificate")
	if p.options.CertificateSource == options.FromFiles {
		return servingcert.NewFiles(p.options.TLSCertFile, p.options.TLSPrivateKeyFile, p.recorder.SetCertificateExpiry, log)
	}
	return servingcert.NewSelfManaged(servingcert.SelfManagedOptions{
		Client:          p.client,
		SecretNamespace: p.options.CertificateSecretNamespace, SecretName: p.options.CertificateSecretName,
		WebhookConfigurationName: p.options.WebhookConfigurationName,
		Hosts:                    p.options.CertificateDNSNames,
		CADuration:               p.options.CADuration, CertificateDuration: p.options.CertificateDuration,
		OnChange: p.recorder.SetCertificateExpiry, Logger: log,
	}), nil
}

// tlsConfig returns the TLS settings of a server with the serving certificate.
func (p *program) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: p.options.MinVersion, CipherSuites: p.options.CipherSuites, GetCertificate: p.certificate.GetCertificate}
}

// addServers adds the servers of the reviews, the metrics and the probes.
func (p *program) addServers() error {
	tlsConfig := p.tlsConfig()
	if p.options.ClientCAFile != "" {
		callers, err := httpserver.NewVerifier(p.options.ClientCAFile, p.options.ClientAllowedNames, p.log.WithName("callers"))
		if err != nil {
			return err
		}
		callers.Configure(tlsConfig)
		p.others = append(p.others, callers.Start)
	}
	address := net.JoinHostPort(host(p.options.BindAddress), strconv.Itoa(p.options.SecurePort))
	p.reviews = httpserver.NewReviews(address, httpserver.Closing(p.draining, http.HandlerFunc(p.serveReview)), tlsConfig, p.log.WithName("reviews"))
	if p.options.HealthProbeBindAddress != "0" {
		p.serveAtOnce(httpserver.NewPort(p.options.HealthProbeBindAddress, p.healthMux(), nil, p.log.WithName("health")))
	}
	if p.options.MetricsBindAddress != "0" {
		p.addMetrics(p.log.WithName("metrics"))
	}
	return nil
}

// serveAtOnce adds a server that serves without waiting for readiness.
func (p *program) serveAtOnce(server *http.Server) {
	p.others = append(p.others, func(ctx context.Context) error {
		return httpserver.ListenAndServe(ctx, server, func() bool { return true })
	})
}

// scrapes returns the handler of the metrics.
func scrapes(gatherer prometheus.Gatherer) http.Handler {
	return httpserver.InTurns(maxScrapes, promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
}

// addMetrics adds the metrics server. With --metrics-secure, it uses the serving certificate,
// and the API server authorizes the callers.
func (p *program) addMetrics(log logr.Logger) {
	handler := scrapes(p.registry)
	var tlsConfig *tls.Config
	if p.options.MetricsSecure {
		handler = httpserver.Authorize(p.client, metricsPath, handler, log)
		tlsConfig = p.tlsConfig()
	}
	mux := http.NewServeMux()
	mux.Handle(metricsPath, handler)
	p.serveAtOnce(httpserver.NewPort(p.options.MetricsBindAddress, mux, tlsConfig, log))
}

// host returns the host to listen on. In Go, 0.0.0.0 means IPv4 only, and an empty host means
// all IP families.
func host(bindAddress string) string {
	if net.ParseIP(bindAddress).IsUnspecified() {
		return ""
	}
	return bindAddress
}

// serveReview serves each kind of review on its own path.
func (p *program) serveReview(w http.ResponseWriter, r *http.Request) {
	handler, found := p.injection.Load().handlers[r.URL.Path]
	if !found {
		httpserver.Refuse(w, "404 page not found", http.StatusNotFound)
		return
	}
	handler.ServeHTTP(w, r)
}

// watchConfig loads the file of --config, now and after each change.
func (p *program) watchConfig() (*httpserver.Files, error) {
	file := httpserver.NewFiles(func(contents [][]byte) error { return p.load(contents[0]) }, p.log.WithName("config"), p.options.ConfigFile)
	file.Report = p.recorder.SetConfigReload
	p.others = append(p.others, file.Start)
	err := file.Load()
	p.recorder.SetConfigReload(err)
	return file, err
}

// load reads the settings from the arguments and the content of the file. The next request
// uses them. If there is a mistake, the previous settings stay.
func (p *program) load(content []byte) error {
	o, s, err := load(p.args, func(string) ([]byte, error) { return content, nil }, p.reserved)
	if err != nil {
		return err
	}
	warnOfReservedAudiences(s, p.log)
	before := p.injection.Swap(&injection{settings: s, handlers: p.webhooks.Handlers(s)})
	if before == nil { // the start
		return nil
	}
	log := p.log.WithName("config").WithValues("file", o.ConfigFile)
	log.Info("Loaded the changed file of --config", "customProviders", len(o.File.Providers), "mappings", len(s.Mappings))
	if restart := p.options.Restart(o); len(restart) > 0 {
		log.Info("Some changed settings of the file of --config need a restart", "settings", restart)
	}
	return nil
}

// run runs all parts until ctx is done or one of them fails.
func (p *program) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, start := range append(p.others, p.certificate.Start, p.webhooks.ServiceAccounts.Start, p.webhooks.Namespaces.Start, p.serveReviews) {
		group.Go(func() error { return start(ctx) })
	}
	return group.Wait()
}
