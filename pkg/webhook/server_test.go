// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
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
)

// start runs a manager with the webhooks until the test ends. Nothing here needs an API
// server: the manager reads from it only for reviews.
func start(t *testing.T, set func(*ctrlwebhook.Options)) (address string) {
	t.Helper()
	source := httptest.NewUnstartedServer(nil)
	source.StartTLS()
	certificate := source.TLS.Certificates[0]
	address = source.Listener.Addr().String() // free when the source is closed
	source.Close()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	options := ctrlwebhook.Options{Host: "127.0.0.1", TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
	}}}
	if options.Port, err = strconv.Atoi(port); err != nil {
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
	for deadline := time.Now().Add(10 * time.Second); webhooks.StartedChecker()(nil) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(webhooks.StartedChecker()(nil))
		}
	}
	return address
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// handshake returns a connection whose client offers the protocols.
func handshake(t *testing.T, address string, protocols ...string) *tls.Conn {
	t.Helper()
	conn := tls.Client(dial(t, address), &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

// closed reports whether the server closes the connection within the time.
func closed(t *testing.T, conn net.Conn, within time.Duration) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestAnEmbeddedServerHasTheLimitsOfLanyardWebhook(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(t *testing.T, address string){
		"it serves reviews": func(t *testing.T, address string) {
			conn := handshake(t, address, "http/1.1")
			if got := post(t, conn, ""); got != http.StatusUnsupportedMediaType { // the request has no type
				t.Errorf("got status %d, want %d", got, http.StatusUnsupportedMediaType)
			}
		},
		"it denies long headers": func(t *testing.T, address string) {
			conn := handshake(t, address, "http/1.1")
			if got := post(t, conn, "Long: "+strings.Repeat("a", 1_000_000)+"\r\n"); got != 0 && got != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("got status %d, want %d or a closed connection", got, http.StatusRequestHeaderFieldsTooLarge)
			}
		},
		"it does not speak HTTP/2": func(t *testing.T, address string) {
			if got := handshake(t, address, "h2", "http/1.1").ConnectionState(); got.NegotiatedProtocol != "http/1.1" || got.Version != tls.VersionTLS13 {
				t.Errorf("got protocol %q and TLS %s, want http/1.1 and TLS 1.3", got.NegotiatedProtocol, tls.VersionName(got.Version))
			}
		},
		"it disconnects a silent client": func(t *testing.T, address string) {
			if conn := handshake(t, address, "http/1.1"); !closed(t, conn, 10*time.Second) {
				t.Error("got an open connection after 10 seconds without a request, want it closed")
			}
		},
		"it limits the connections": func(t *testing.T, address string) {
			first := dial(t, address)
			for range 256 {
				dial(t, address)
			}
			if !closed(t, first, 2*time.Second) {
				t.Error("got 257 open connections, want the first closed")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, start(t, func(*ctrlwebhook.Options) {}))
		})
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
	if got := post(t, conn, ""); got != 0 {
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
func post(t *testing.T, conn net.Conn, header string) int {
	t.Helper()
	go func() {
		_, _ = io.WriteString(conn, "POST "+webhook.MutatePodPath+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"+header+"\r\n")
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
