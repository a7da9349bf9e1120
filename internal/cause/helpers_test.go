// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cause_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// failure is a dialer that fails.
type failure struct{ error }

func (f *failure) dial(context.Context, string, string) (net.Conn, error) { return nil, f.error }

// asking makes the server ask for a client certificate, and deny each caller.
func asking(how tls.ClientAuthType) func(*httptest.Server, *rest.Config) {
	return func(s *httptest.Server, _ *rest.Config) {
		s.TLS = &tls.Config{ClientAuth: how}
		if how == tls.RequestClientCert {
			s.TLS.VerifyConnection = func(tls.ConnectionState) error { return errors.New("denied") }
		}
	}
}

// plain makes the client connect to a server without TLS.
func plain(t *testing.T, c *rest.Config) {
	t.Helper()
	server := httptest.NewServer(nil)
	t.Cleanup(server.Close)
	c.Host, c.CAData, c.Dial = "https://"+server.Listener.Addr().String(), newCA(t), new(net.Dialer).DialContext
}

// newCA returns the certificate of a CA that has issued nothing.
func newCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var ca *x509.Certificate
	if ca, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "other"}, key); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
}
