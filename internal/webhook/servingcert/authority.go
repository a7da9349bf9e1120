// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret of an authority. The first two are those of type kubernetes.io/tls, and
// the third conventionally contains the CAs to trust.
const (
	certificateKey = "tls.crt"
	privateKeyKey  = "tls.key"
	bundleKey      = "ca.crt"
)

// authorityName is the subject of every CA certificate. It must not change, or leaves that
// were signed earlier do not verify against a renewed CA certificate.
const authorityName = "lanyard-webhook-ca"

// backdate is the tolerated lag of an API server's clock.
const backdate = 5 * time.Minute

// maxPrevious limits the previous CA certificates that are trusted in addition to
// the current one.
const maxPrevious = 8

// authority is a certificate authority with the previous ones that must stay trusted. It is
// immutable.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	// previous are CA certificates with previous keys whose leaves may still be in use.
	previous []*x509.Certificate
}

// certify creates a CA certificate for the key, or for a new key if it is nil. Earlier leaves
// of the key verify against the new certificate. previous are CA certificates that stay
// trusted until they expire.
func certify(key crypto.Signer, now time.Time, lifetime time.Duration, previous []*x509.Certificate) (*authority, error) {
	if key == nil {
		var err error
		if key, err = newKey(); err != nil {
			return nil, err
		}
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: authorityName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(lifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	certificate, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create a CA certificate: %w", err)
	}
	return &authority{certificate: certificate, key: key, previous: retained(previous, certificate, now)}, nil
}

// retained returns the previous CA certificates that must stay trusted: unexpired, distinct,
// and with a different key than the current one. It returns at most maxPrevious, because
// others may write the objects that they come from.
func retained(previous []*x509.Certificate, current *x509.Certificate, now time.Time) []*x509.Certificate {
	var keep []*x509.Certificate
	for _, c := range previous {
		known := slices.ContainsFunc(keep, c.Equal)
		if c.IsCA && !known && now.Before(c.NotAfter) && !sameKey(c, current) && len(keep) < maxPrevious {
			keep = append(keep, c)
		}
	}
	return keep
}

func sameKey(a, b *x509.Certificate) bool {
	return slices.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo)
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	return key, nil
}

// leaf issues a serving certificate for the hosts, which are DNS names or IP
// addresses, with a new key. It does not outlive the authority.
func (a *authority) leaf(now time.Time, lifetime time.Duration, hosts []string) (*tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	notAfter := now.Add(lifetime)
	if notAfter.After(a.certificate.NotAfter) {
		notAfter = a.certificate.NotAfter
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: hosts[0]},
		NotBefore:             now.Add(-backdate),
		NotAfter:              notAfter,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	certificate, err := sign(template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("create a serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// renewAt returns when to renew the certificate: after two thirds of its lifetime.
func renewAt(c *x509.Certificate) time.Time {
	issued := c.NotBefore.Add(backdate)
	return issued.Add(c.NotAfter.Sub(issued) * 2 / 3)
}

// forgetAt returns when the last leaf of a previous key has expired, if leaves live
// for leafLifetime.
func (a *authority) forgetAt(leafLifetime time.Duration) time.Time {
	return a.certificate.NotBefore.Add(backdate + leafLifetime)
}

// bundle returns the certificates to trust in PEM, the current one first.
func (a *authority) bundle() []byte {
	text := encodeCertificate(a.certificate)
	for _, c := range a.previous {
		text = append(text, encodeCertificate(c)...)
	}
	return text
}

func encodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})
}

// encode returns the data of the Secret.
func (a *authority) encode() (map[string][]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of the CA: %w", err)
	}
	return map[string][]byte{
		certificateKey: encodeCertificate(a.certificate),
		privateKeyKey:  pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: key}),
		bundleKey:      a.bundle(),
	}, nil
}

// decodeAuthority reads the data of the Secret. Its errors do not contain the
// data.
func decodeAuthority(data map[string][]byte, now time.Time) (*authority, error) {
	pair, err := tls.X509KeyPair(data[certificateKey], data[privateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certificateKey, privateKeyKey, err)
	}
	current := pair.Leaf
	key, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok || !current.IsCA || current.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("%s: not the certificate of a CA", certificateKey)
	case now.After(current.NotAfter):
		return nil, fmt.Errorf("%s: expired at %s", certificateKey, current.NotAfter.UTC().Format(time.RFC3339))
	}
	return &authority{certificate: current, key: key, previous: retained(decodeBundle(data[bundleKey]), current, now)}, nil
}

// decodeKey returns the key in the Secret, or nil if it is not valid.
func decodeKey(data map[string][]byte) crypto.Signer {
	key, err := keyutil.ParsePrivateKeyPEM(data[privateKeyKey])
	if err != nil {
		return nil
	}
	signer, _ := key.(crypto.Signer)
	return signer
}

// decodeBundle returns the certificates of a bundle, or nil if it is not PEM.
func decodeBundle(text []byte) []*x509.Certificate {
	certificates, err := cert.ParseCertsPEM(text)
	if err != nil {
		return nil
	}
	return certificates
}
