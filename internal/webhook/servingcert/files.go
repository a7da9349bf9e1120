// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingcert provides the serving certificate of the webhook server:
// from files, or from a CA that the replicas share and manage themselves.
package servingcert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
)

// Files is a certificate and its key in two PEM files, such as the files of a mounted
// Secret. Changed files are loaded without a restart.
type Files struct {
	certFile, keyFile string
	onChange          func(notAfter time.Time)
	log               logr.Logger
	files             *httpserver.Files
	current           atomic.Pointer[tls.Certificate]
}

// NewFiles loads the files. It calls onChange with the expiry of the certificate,
// as Start does for each certificate that it loads.
func NewFiles(certFile, keyFile string, onChange func(notAfter time.Time), log logr.Logger) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile, onChange: onChange, log: log}
	f.files = httpserver.NewFiles(f.use, log, certFile, keyFile)
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// load loads the files if they changed. If it fails, the current certificate stays.
func (f *Files) load() error {
	if err := f.files.Load(); err != nil {
		return fmt.Errorf("read serving certificate %s and key %s: %w", f.certFile, f.keyFile, err)
	}
	return nil
}

// use takes the contents of both files.
func (f *Files) use(contents [][]byte) error {
	certificate, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return err
	}
	f.current.Store(&certificate)
	f.onChange(certificate.Leaf.NotAfter)
	f.log.Info("Loaded the serving certificate", "subject", certificate.Leaf.Subject.String(), "notAfter", certificate.Leaf.NotAfter)
	return nil
}

// Ready reports whether there is a certificate, which NewFiles ensures.
func (f *Files) Ready() bool { return f.current.Load() != nil }

// GetCertificate is for tls.Config.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// Start loads changed files until ctx is done. If they are invalid, the current
// certificate stays.
func (f *Files) Start(ctx context.Context) error { return f.files.Start(ctx) }

// Check is a health check. It fails while the certificate is not valid yet or has
// expired.
func (f *Files) Check(*http.Request) error { return f.checkAt(time.Now()) }

func (f *Files) checkAt(now time.Time) error { return checkValidity(f.current.Load().Leaf, now) }

func checkValidity(leaf *x509.Certificate, now time.Time) error {
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return fmt.Errorf("serving certificate is valid from %s to %s, but the time is %s",
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
