// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package emulatortest redirects a program to the emulated clouds, without a cluster.
package emulatortest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// Start serves the emulated clouds until the end of the test. It returns an environment
// in which all host names of the clouds lead to them.
func Start(t testing.TB, config trust.Trust, tokens *issuer.Issuer, log *journal.Journal) (environment []string) {
	t.Helper()
	clouds, err := emulator.New(config, tokens, log)
	if err != nil {
		t.Fatal(err)
	}
	const local = "localhost"
	serving, err := controlplane.NewServingPEM(append(emulator.Hosts(), local)...)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, _ := net.SplitHostPort(r.Host); host == local {
			r.Host = "sts.amazonaws.com"
		}
		clouds.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	proxy := httptest.NewServer(connector(address))
	t.Cleanup(proxy.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, serving.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	// AWS's SDK for JavaScript does not use a proxy.
	return append(emulator.Environment(ca), "HTTPS_PROXY="+proxy.URL, "NO_PROXY="+local, "AWS_ENDPOINT_URL_STS=https://"+net.JoinHostPort(local, port))
}

// connector returns a proxy that connects every client to one address.
func connector(address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		var dialer net.Dialer
		server, err := dialer.DialContext(context.WithoutCancel(r.Context()), "tcp", address)
		if err != nil {
			return
		}
		defer server.Close()
		if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		_, _ = io.Copy(client, server)
	})
}
