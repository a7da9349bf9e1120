// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

var errNone = errors.New("no serving certificate yet")

// served is the certificate that is served now.
type served struct {
	current atomic.Pointer[tls.Certificate]
}

// leaf returns the certificate, nil for none.
func (s *served) leaf() *x509.Certificate {
	if certificate := s.current.Load(); certificate != nil {
		return certificate.Leaf
	}
	return nil
}

// Ready reports whether there is a certificate.
func (s *served) Ready() bool { return s.leaf() != nil }

// GetCertificate is for tls.Config.
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
