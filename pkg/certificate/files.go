// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificate provides the webhook server with its serving
// certificate.
package certificate

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Files is a certificate and its key in two PEM files. They are read anew when
// they change, as a mounted Secret does when its certificate is renewed.
type Files struct {
	watcher *certwatcher.CertWatcher
}

// NewFiles reads the files. onChange is told when the certificate expires, now
// and each time another one is read.
func NewFiles(certFile, keyFile string, onChange func(notAfter time.Time)) (*Files, error) {
	watcher, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read serving certificate %s and key %s: %w", certFile, keyFile, err)
	}
	// It is called at once with the certificate that New has read.
	watcher.RegisterCallback(func(certificate tls.Certificate) { onChange(certificate.Leaf.NotAfter) })
	return &Files{watcher: watcher}, nil
}

// GetCertificate is for tls.Config.
func (f *Files) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.watcher.GetCertificate(hello)
}

// Start watches the files until ctx ends.
func (f *Files) Start(ctx context.Context) error { return f.watcher.Start(ctx) }

// NeedLeaderElection says that every replica watches.
func (f *Files) NeedLeaderElection() bool { return false }

// Check is a health check: it fails while the certificate is outside of its
// validity, when no client accepts it.
func (f *Files) Check(*http.Request) error { return f.checkAt(time.Now()) }

func (f *Files) checkAt(now time.Time) error {
	certificate, err := f.watcher.GetCertificate(nil)
	if err != nil {
		return err
	}
	leaf := certificate.Leaf
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return fmt.Errorf("serving certificate is valid from %s to %s, and now it is %s",
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
