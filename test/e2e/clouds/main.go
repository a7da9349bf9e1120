// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command clouds emulates AWS STS, Microsoft Entra ID, and Google's STS and IAM
// Service Account Credentials in one program, for the exchange of Kubernetes
// tokens. It verifies each token against the cluster's OIDC discovery and keys,
// compares it with a trust file in the clouds' own formats, and responds as the
// real services do. It writes each decision as a JSON line to standard output.
// In the cluster it needs only the rights that every ServiceAccount has.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// timeout limits a request, and the time for open requests during shutdown.
const timeout = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "clouds:", err)
		os.Exit(1)
	}
}

// options contains the command-line flags.
type options struct {
	trust, certificate, key   string
	bindAddress, probeAddress string
	kubeconfig                string
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("clouds", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.trust, "trust", "", "Trust `file` of the clouds. Required.")
	flags.StringVar(&o.certificate, "tls-cert-file", "", "Certificate `file` for the clouds' host names. Required.")
	flags.StringVar(&o.key, "tls-private-key-file", "", "Private key `file` of the certificate. Required.")
	flags.StringVar(&o.bindAddress, "bind-address", ":8443", "HTTPS `address` of the clouds.")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "HTTP `address` of /readyz and /journal.")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig `file`. The default is the in-cluster configuration.")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if o.trust == "" || o.certificate == "" || o.key == "" || flags.NArg() > 0 {
		return options{}, fmt.Errorf("got --trust %q, --tls-cert-file %q, --tls-private-key-file %q and arguments %q, want three files and no arguments",
			o.trust, o.certificate, o.key, flags.Args())
	}
	return o, nil
}

// run serves until ctx ends. The journal goes to stdout, errors go to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	opts, err := parse(args, stderr)
	if err != nil {
		return err
	}
	file, err := os.ReadFile(opts.trust)
	if err != nil {
		return fmt.Errorf("read the trust file: %w", err)
	}
	trusted, err := trust.Parse(file)
	if err != nil {
		return err
	}
	config, err := clusterConfig(opts.kubeconfig)
	if err != nil {
		return fmt.Errorf("load the cluster's configuration: %w", err)
	}
	tokens, err := issuer.New(config)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	entries := journal.New(stdout, logger)
	clouds, err := emulator.New(trusted, tokens, entries)
	if err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair(opts.certificate, opts.key)
	if err != nil {
		return fmt.Errorf("load the certificate: %w", err)
	}
	secure := server(clouds, logger)
	secure.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	// Both listen before either serves, so that the clouds are reachable as soon as the
	// program is ready.
	listeners, err := listen(ctx, opts.bindAddress, opts.probeAddress)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, secure, listeners[0]) })
	group.Go(func() error { return serve(ctx, server(probes(tokens, entries), logger), listeners[1]) })
	return group.Wait()
}

func clusterConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// probes returns a handler that is ready when the cluster's discovery and keys
// have been read. It also returns the journal.
func probes(tokens *issuer.Issuer, entries *journal.Journal) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /journal", entries)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if _, err := tokens.URL(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}

func server(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       timeout,
		WriteTimeout:      timeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// listen listens on all addresses, or on none if it returns an error.
func listen(ctx context.Context, addresses ...string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}

// serve serves until ctx ends and then waits for open requests.
func serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		ended <- server.Shutdown(ending)
	})
	serve := server.Serve
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return <-ended
}
