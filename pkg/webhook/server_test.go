// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lanyard-dev/lanyard/pkg/webhook"
	harness "github.com/lanyard-dev/lanyard/test/support/webhook"
)

// start runs a manager with the webhooks until the test ends. Nothing here needs an API
// server: the manager reads from it only for reviews.
func start(t *testing.T, set func(*ctrlwebhook.Options)) (address string) {
	t.Helper()
	source := httptest.NewUnstartedServer(nil)
	source.StartTLS()
	certificate := source.TLS.Certificates[0]
	source.Close()
	ports, err := harness.FreePorts(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	options := ctrlwebhook.Options{Host: "127.0.0.1", TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
	}}}
	if options.Port, err = strconv.Atoi(ports[0]); err != nil {
		t.Fatal(err)
	}
	set(&options)
	webhooks := webhook.NewServer(options)
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{Metrics: server.Options{BindAddress: "0"}, WebhookServer: webhooks})
	if err != nil {
		t.Fatal(err)
	}
	if err := webhook.AddToManager(mgr, webhook.Options{Registerer: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	if err := webhooks.StartedChecker()(nil); err == nil {
		t.Error("got a healthy server before the manager started")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); webhooks.StartedChecker()(nil) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(webhooks.StartedChecker()(nil))
		}
	}
	return net.JoinHostPort(options.Host, ports[0])
}

// handshake returns a connection whose client offers HTTP/2 and HTTP/1.1.
func handshake(t *testing.T, address string) *tls.Conn {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*tls.Conn)
}

func TestAnEmbeddedServerServesReviewsWithItsLimits(t *testing.T) {
	t.Parallel()
	conn := handshake(t, start(t, func(*ctrlwebhook.Options) {}))
	if got := conn.ConnectionState(); got.NegotiatedProtocol != "http/1.1" || got.Version != tls.VersionTLS13 {
		t.Errorf("got protocol %q and %s, want http/1.1 and TLS 1.3", got.NegotiatedProtocol, tls.VersionName(got.Version))
	}
	if got := post(t, conn); got != http.StatusUnsupportedMediaType { // the request has no type
		t.Errorf("got status %d, want %d", got, http.StatusUnsupportedMediaType)
	}
}

func TestAnEmbeddedServerAsksForTheCertificateOfItsCallers(t *testing.T) {
	t.Parallel()
	source := httptest.NewUnstartedServer(nil)
	source.StartTLS()
	defer source.Close()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: source.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	conn := handshake(t, start(t, func(o *ctrlwebhook.Options) { o.CertDir, o.ClientCAName = dir, "ca.crt" }))
	if got := post(t, conn); got != 0 {
		t.Errorf("got status %d without a client certificate, want a closed connection", got)
	}
}

func TestAnEmbeddedServerDoesNotStartWithoutItsFilesOrTwoChecksOfCallers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options ctrlwebhook.Options
		want    string
	}{
		"no certificate": {ctrlwebhook.Options{CertDir: t.TempDir()}, "tls.crt"},
		"no CA":          {ctrlwebhook.Options{CertDir: t.TempDir(), ClientCAName: "ca.crt", TLSOpts: []func(*tls.Config){certificate}}, "ca.crt"},
		"two checks": {ctrlwebhook.Options{ClientCAName: "ca.crt", TLSOpts: []func(*tls.Config){certificate, func(c *tls.Config) {
			c.VerifyConnection = func(tls.ConnectionState) error { return nil }
		}}}, "VerifyConnection"},
		"turned off": {ctrlwebhook.Options{Port: -1}, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := webhook.NewServer(test.options).Start(t.Context()); !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

// certificate provides no certificate, but the server reads none from files.
func certificate(c *tls.Config) {
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
}

// post sends a request without a body. It returns the status of the response, or 0 if
// the server closes the connection.
func post(t *testing.T, conn net.Conn) int {
	t.Helper()
	_, _ = io.WriteString(conn, "POST "+webhook.MutatePodPath+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
