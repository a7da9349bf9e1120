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

// NewServingCertificate makes a throw-away CA and under it a certificate for
// the hosts, names or addresses, in the existing directory dir. Without a host
// it is for 127.0.0.1 and localhost. It is valid for a year.
//
// certFile (tls.crt, the leaf and then the CA) and keyFile (tls.key, mode 0600)
// are what a server takes, caPEM is the caBundle of a webhook's clientConfig.
func NewServingCertificate(dir string, hosts ...string) (certFile, keyFile string, caPEM []byte, err error) {
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
		return "", "", nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	caPEM, err = issuerOf(certPEM)
	if err != nil {
		return "", "", nil, fmt.Errorf("making a serving certificate: %w", err)
	}

	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	err = errors.Join(os.WriteFile(certFile, certPEM, 0o644), os.WriteFile(keyFile, keyPEM, 0o600))
	if err != nil {
		return "", "", nil, fmt.Errorf("writing a serving certificate: %w", err)
	}
	return certFile, keyFile, caPEM, nil
}

// issuerOf returns the second certificate of a chain: the leaf's issuer.
func issuerOf(chainPEM []byte) ([]byte, error) {
	chain, err := certutil.ParseCertsPEM(chainPEM)
	if err != nil {
		return nil, err
	}
	if len(chain) != 2 {
		return nil, fmt.Errorf("got a chain of %d certificates, want 2", len(chain))
	}
	return certutil.EncodeCertificates(chain[1])
}
