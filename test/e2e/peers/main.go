// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command peers serves the stand-ins of test/support/peers as admission webhooks. In
// the cluster it needs the right to get ServiceAccounts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/peers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	config := flags.String("config", "", "YAML `file` with the flags of each webhook by its path. Required.")
	certificate := flags.String("tls-cert-file", "", "Certificate `file`. Required.")
	key := flags.String("tls-private-key-file", "", "Private key `file` of the certificate. Required.")
	address := flags.String("bind-address", ":8443", "HTTPS `address`.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cluster, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	cluster.QPS = -1 // pods of a suite must not wait
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return err
	}
	handler, err := handlers(*config, client)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: *address, Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS(*certificate, *key); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", *address, err)
	}
	return nil
}

// handlers returns a handler with the webhooks of the file, and /readyz.
func handlers(file string, client kubernetes.Interface) (http.Handler, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --config: %w", err)
	}
	var webhooks map[string]peers.Flags
	if err := yaml.UnmarshalStrict(text, &webhooks); err != nil {
		return nil, fmt.Errorf("decode %s: %w", file, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	for path, flags := range webhooks {
		peer, err := flags.Peer()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, path, err)
		}
		mux.Handle("POST /"+path, peers.NewHandler(peer, client))
	}
	return mux, nil
}
