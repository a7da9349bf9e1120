// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki creates the temporary certificates of a cluster.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// lifetime is the validity of a certificate. It is longer than any cluster
// runs.
const lifetime = 30 * 24 * time.Hour

// Pair is a PEM certificate and its PEM private key.
type Pair struct {
	CertPEM, KeyPEM []byte
}

// CA issues certificates. It is safe for concurrent use.
type CA struct {
	// Pair is the CA's own certificate and key.
	Pair

	cert *x509.Certificate
	key  crypto.Signer
}

// NewCA creates a CA with a new key.
func NewCA(name string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a CA: %w", err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	if err != nil {
		return nil, fmt.Errorf("create a CA: %w", err)
	}
	certPEM, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return nil, fmt.Errorf("create a CA: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("create a CA: %w", err)
	}
	return &CA{Pair: Pair{CertPEM: certPEM, KeyPEM: keyPEM}, cert: cert, key: key}, nil
}

// Client issues a user's certificate. Kubernetes uses the common name as the
// user name and the organizations as groups.
func (ca *CA) Client(user string, groups ...string) (Pair, error) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Server issues a server certificate for the names and addresses.
func (ca *CA) Server(name string, dnsNames []string, ips ...net.IP) (Pair, error) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    dnsNames,
		IPAddresses: ips,
	})
}

// issue signs the template for a new key.
func (ca *CA) issue(template *x509.Certificate) (Pair, error) {
	pair, err := ca.sign(template)
	if err != nil {
		return Pair{}, fmt.Errorf("issue a certificate to %s: %w", template.Subject.CommonName, err)
	}
	return pair, nil
}

func (ca *CA) sign(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return Pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber = serial
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.NotBefore = ca.cert.NotBefore
	template.NotAfter = ca.cert.NotBefore.Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return Pair{}, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
	return Pair{CertPEM: certPEM, KeyPEM: keyPEM}, nil
}

// NewSigningKey creates the PEM key that signs ServiceAccount tokens. It is an
// RSA key, as in most clusters, because some clouds accept no other.
func NewSigningKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("create a signing key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyutil.RSAPrivateKeyBlockType, Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}
