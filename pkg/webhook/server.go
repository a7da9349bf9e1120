// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
	"github.com/lanyard-dev/lanyard/internal/webhook/servingcert"
)

// NewServer returns a webhook server for ctrl.Options.WebhookServer. Unlike the server of
// controller-runtime, it has the limits of lanyard-webhook on the number of connections, the
// length of headers, and the time to send a request and read the response. It supports only
// HTTP/1.1, and TLS 1.3 unless TLSOpts sets another MinVersion. The options are those of
// controller-runtime, and the file ClientCAName is reloaded when it changes.
func NewServer(o ctrlwebhook.Options) ctrlwebhook.Server {
	o.Port = cmp.Or(o.Port, ctrlwebhook.DefaultPort)
	o.CertDir = cmp.Or(o.CertDir, filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs"))
	o.CertName, o.KeyName = cmp.Or(o.CertName, "tls.crt"), cmp.Or(o.KeyName, "tls.key")
	o.WebhookMux = cmp.Or(o.WebhookMux, http.NewServeMux())
	return &server{Server: ctrlwebhook.NewServer(o), options: o}
}

// NewPort returns a server for the metrics or probes of a manager, with the limits of
// lanyard-webhook: at most 32 connections, short headers, no bodies and short timeouts. Use it
// instead of the manager's own servers, which accept headers of 1 MiB, for which net/http may
// allocate 30 MiB, and wait 32 seconds for a silent client.
func NewPort(name, address string, handler http.Handler) *manager.Server {
	log := ctrl.Log.WithName("lanyard").WithName(name)
	return &manager.Server{Name: name, Server: httpserver.NewPort(address, handler, nil, log)}
}

// server is a server of controller-runtime that is started with limits.
type server struct {
	ctrlwebhook.Server
	options ctrlwebhook.Options
	started atomic.Bool
}

// Start implements webhook.Server.
func (s *server) Start(ctx context.Context) error {
	if s.options.Port < 0 { // turns the server off
		return nil
	}
	log := ctrl.Log.WithName("lanyard").WithName("server")
	group, ctx := errgroup.WithContext(ctx)
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, set := range s.options.TLSOpts {
		set(config)
	}
	if config.GetCertificate == nil {
		files, err := servingcert.NewFiles(s.inCertDir(s.options.CertName), s.inCertDir(s.options.KeyName), func(time.Time) {}, log)
		if err != nil {
			return err
		}
		config.GetCertificate = files.GetCertificate
		group.Go(func() error { return files.Start(ctx) })
	}
	if s.options.ClientCAName != "" {
		if config.VerifyConnection != nil {
			return errors.New("webhook server: ClientCAName needs VerifyConnection, which TLSOpts sets")
		}
		callers, err := httpserver.NewVerifier(s.inCertDir(s.options.ClientCAName), nil, log)
		if err != nil {
			return err
		}
		callers.Configure(config)
		group.Go(func() error { return callers.Start(ctx) })
	}
	group.Go(func() error {
		return httpserver.ListenAndServe(ctx, s.limited(config, log), func() bool { s.started.Store(true); return true })
	})
	return group.Wait()
}

// limited returns an HTTP server with these limits.
func (s *server) limited(config *tls.Config, log logr.Logger) *http.Server {
	address := net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
	return httpserver.NewReviews(address, s.options.WebhookMux, config, log)
}

func (s *server) inCertDir(name string) string { return filepath.Join(s.options.CertDir, name) }

// StartedChecker implements webhook.Server.
func (s *server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if s.options.Port < 0 || s.started.Load() {
			return nil
		}
		return errors.New("webhook server has not been started yet")
	}
}
