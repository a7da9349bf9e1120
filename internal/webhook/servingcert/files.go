// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingcert provides the serving certificate of the webhook server:
// from files, or from a CA that the replicas share and manage themselves.
package servingcert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
)

// Files is a certificate and its key in two PEM files, such as those of a mounted Secret.
// Changed files are reloaded.
type Files struct {
	served

	onChange func(notAfter time.Time)
	log      logr.Logger
	files    *httpserver.Files
}

// NewFiles loads the files. It calls onChange with the expiry of the certificate,
// as Start does for each certificate that it loads.
func NewFiles(certFile, keyFile string, onChange func(notAfter time.Time), log logr.Logger) (*Files, error) {
	f := &Files{onChange: onChange, log: log}
	f.files = httpserver.NewFiles(f.use, log, certFile, keyFile)
	if err := f.files.Load(); err != nil {
		return nil, fmt.Errorf("read serving certificate %s and key %s: %w", certFile, keyFile, err)
	}
	return f, nil
}

// use takes the contents of both files.
func (f *Files) use(contents [][]byte) error {
	if err := httpserver.CheckPEM(contents[0]); err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return err
	}
	f.current.Store(&certificate)
	f.onChange(certificate.Leaf.NotAfter)
	f.log.Info("Loaded the serving certificate", "subject", certificate.Leaf.Subject.String(), "notAfter", certificate.Leaf.NotAfter)
	return nil
}

// Start reloads changed files until ctx is done. If they are invalid, the current certificate
// stays.
func (f *Files) Start(ctx context.Context) error { return f.files.Start(ctx) }

var errNone = errors.New("no serving certificate yet")

// served is the certificate that is served now.
type served struct {
	current atomic.Pointer[tls.Certificate]
}

// leaf returns the certificate, or nil if there is none.
func (s *served) leaf() *x509.Certificate {
	if certificate := s.current.Load(); certificate != nil {
		return certificate.Leaf
	}
	return nil
}

// Ready reports whether there is a certificate.
func (s *served) Ready() bool { return s.leaf() != nil }

// GetCertificate is a function for tls.Config.
func (s *served) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := s.current.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errNone
}

// Check is a health check. It fails while the certificate is missing, is not valid yet
// or has expired.
func (s *served) Check(*http.Request) error { return s.checkAt(time.Now()) }

func (s *served) checkAt(now time.Time) error {
	leaf := s.leaf()
	switch {
	case leaf == nil:
		return errNone
	case now.Before(leaf.NotBefore) || now.After(leaf.NotAfter):
		return fmt.Errorf("serving certificate is valid from %s to %s, but the time is %s",
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
