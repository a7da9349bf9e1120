// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
)

// ServingPEM is a serving certificate and its CA, PEM-encoded.
type ServingPEM struct {
	// Cert holds the leaf followed by the CA; Key is the leaf's private key.
	Cert, Key []byte
	// CA is the caBundle for a webhook's clientConfig.
	CA []byte
}

// NewServingPEM creates a temporary CA and a certificate for the hosts, which
// are names or addresses. The default hosts are 127.0.0.1 and localhost. The
// certificate is valid for a year.
func NewServingPEM(hosts ...string) (*ServingPEM, error) {
	if len(hosts) == 0 {
		hosts = []string{"127.0.0.1", "localhost"}
	}
	var ips []net.IP
	var names []string
	for _, host := range hosts[1:] {
		if ip := net.ParseIP(host); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, host)
		}
	}
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(hosts[0], ips, names)
	if err != nil {
		return nil, fmt.Errorf("create a serving certificate: %w", err)
	}
	// The certificate of the CA follows the leaf.
	chain, err := certutil.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("create a serving certificate: %w", err)
	}
	caPEM, err := certutil.EncodeCertificates(chain[1])
	return &ServingPEM{Cert: certPEM, Key: keyPEM, CA: caPEM}, err
}

// NewServingCertificate writes the certificate and the key of NewServingPEM to
// tls.crt and tls.key (mode 0600) in the existing directory dir.
func NewServingCertificate(dir string, hosts ...string) (certFile, keyFile string, caPEM []byte, err error) {
	serving, err := NewServingPEM(hosts...)
	if err != nil {
		return "", "", nil, err
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	err = errors.Join(os.WriteFile(certFile, serving.Cert, 0o644), os.WriteFile(keyFile, serving.Key, 0o600))
	if err != nil {
		return "", "", nil, fmt.Errorf("write a serving certificate: %w", err)
	}
	return certFile, keyFile, serving.CA, nil
}
