// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificate provides the webhook server with its serving
// certificate.
package servingcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// readInterval is how often the files are looked at. A kubelet brings a changed
// Secret within a minute or two; ten seconds more do not matter.
const readInterval = 10 * time.Second

// Files is a certificate and its key in two PEM files. They are read anew when
// they change, as a mounted Secret does when its certificate is renewed.
type Files struct {
	certFile, keyFile string
	onChange          func(notAfter time.Time)
	log               logr.Logger
	interval          time.Duration

	certPEM, keyPEM []byte // as they were read last
	current         atomic.Pointer[tls.Certificate]
}

// NewFiles reads the files. onChange is told when the certificate expires, now
// and each time another one is read.
func NewFiles(certFile, keyFile string, onChange func(notAfter time.Time), log logr.Logger) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile, onChange: onChange, log: log, interval: readInterval}
	if err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// read takes over what the files hold, if it is a certificate with its key, and
// another one than before.
func (f *Files) read() error {
	if err := f.tryRead(); err != nil {
		return fmt.Errorf("read serving certificate %s and key %s: %w", f.certFile, f.keyFile, err)
	}
	return nil
}

func (f *Files) tryRead() error {
	certPEM, err := os.ReadFile(f.certFile)
	if err != nil {
		return err
	}
	keyPEM, err := os.ReadFile(f.keyFile)
	if err != nil {
		return err
	}
	if bytes.Equal(certPEM, f.certPEM) && bytes.Equal(keyPEM, f.keyPEM) {
		return nil
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	f.certPEM, f.keyPEM = certPEM, keyPEM
	f.current.Store(&certificate)
	f.onChange(certificate.Leaf.NotAfter)
	f.log.Info("Serving certificate read", "subject", certificate.Leaf.Subject.String(), "notAfter", certificate.Leaf.NotAfter)
	return nil
}

// GetCertificate is for tls.Config.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// Start looks for changed files until ctx ends. Files that cannot be used leave
// the certificate as it is: the next ones may be better.
func (f *Files) Start(ctx context.Context) error {
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := f.read()
		if err != nil && err.Error() != last {
			f.log.Error(err, "Serving certificate stays as it is")
		}
		last = fmt.Sprint(err)
	}
}

// Check is a health check: it fails while the certificate is outside of its
// validity, when no client accepts it.
func (f *Files) Check(*http.Request) error { return f.checkAt(time.Now()) }

func (f *Files) checkAt(now time.Time) error { return checkValidity(f.current.Load().Leaf, now) }

func checkValidity(leaf *x509.Certificate, now time.Time) error {
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return fmt.Errorf("serving certificate is valid from %s to %s, and now it is %s",
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
