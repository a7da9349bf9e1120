// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestWaitReady(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	if err := WaitReady(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	if got, want := requests.Load(), int32(3); got != want {
		t.Errorf("got %d requests, want %d", got, want)
	}
}

func TestWaitReadyReportsLastAttempt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		if requests.Add(1) > 1 {
			cancel()
		}
	}))
	t.Cleanup(server.Close)
	err := WaitReady(ctx, server.URL)
	if err == nil {
		t.Fatal("got no error, want one")
	}
	for _, want := range []string{context.Canceled.Error(), "got status 503, want 200"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %q, want one with %q", err, want)
		}
	}
}

func TestNewServingCertificate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		hosts []string
		valid []string
		wrong string
	}{
		"the default hosts are the loopback address and localhost": {
			valid: []string{"127.0.0.1", "localhost"},
			wrong: "lanyard.lanyard-system.svc",
		},
		"the certificate is valid only for the given hosts": {
			hosts: []string{"lanyard.lanyard-system.svc", "127.0.0.2", "webhook.test"},
			valid: []string{"lanyard.lanyard-system.svc", "127.0.0.2", "webhook.test"},
			wrong: "localhost",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certFile, keyFile, caPEM, err := NewServingCertificate(t.TempDir(), test.hosts...)
			if err != nil {
				t.Fatal(err)
			}
			certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM(caPEM) {
				t.Fatal("got a CA bundle without certificates")
			}
			for _, host := range test.valid {
				if err := handshake(t, certificate, roots, host); err != nil {
					t.Errorf("connect to %s: %v", host, err)
				}
			}
			if err := handshake(t, certificate, roots, test.wrong); err == nil {
				t.Errorf("connect to %s: got no error, want one", test.wrong)
			}
		})
	}
}

// handshake connects a client, which trusts the roots and expects the host, to
// a server with the certificate.
func handshake(t *testing.T, certificate tls.Certificate, roots *x509.CertPool, host string) error {
	t.Helper()
	clientConn, serverConn := net.Pipe()
	defer clientConn.Close()
	defer serverConn.Close()
	server := tls.Server(serverConn, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13})
	// The server only repeats the client's error: the certificate was rejected.
	go func() { _ = server.HandshakeContext(t.Context()) }()
	client := tls.Client(clientConn, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13})
	return client.HandshakeContext(t.Context())
}
