// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The keys of the Secret that holds an authority. The first two are those of a
// Secret of type kubernetes.io/tls; the third is where others look for what to
// trust.
const (
	certificateKey = "tls.crt"
	privateKeyKey  = "tls.key"
	bundleKey      = "ca.crt"
)

// authorityName is the subject of every CA certificate. A certificate that was
// renewed has to have the subject of the one before, or what the former signed
// would not verify against it.
const authorityName = "lanyard-webhook-ca"

// backdate is how far the clock of an apiserver may be behind.
const backdate = 5 * time.Minute

// maxFormer bounds how many former certificates are trusted beside the current.
const maxFormer = 8

// authority is a certificate authority: what signs serving certificates, and
// what clients have to trust for it. It is never changed.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	// former are CA certificates with other keys, whose leaves may still be in
	// use.
	former []*x509.Certificate
}

// newAuthority makes a key and its certificate. former are those to go on
// trusting for a while; what has expired of them is left out.
func newAuthority(now time.Time, lifetime time.Duration, former []*x509.Certificate) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return certify(key, now, lifetime, former)
}

// renewed gives the authority with a new certificate for the same key: what was
// signed under the old one verifies against the new one too.
func (a *authority) renewed(now time.Time, lifetime time.Duration) (*authority, error) {
	return certify(a.key, now, lifetime, a.former)
}

// withoutFormer gives the authority that stands alone.
func (a *authority) withoutFormer() *authority {
	return &authority{certificate: a.certificate, key: a.key}
}

func certify(key crypto.Signer, now time.Time, lifetime time.Duration, former []*x509.Certificate) (*authority, error) {
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
		return nil, fmt.Errorf("make a CA certificate: %w", err)
	}
	return &authority{certificate: certificate, key: key, former: stillOfUse(former, certificate, now)}, nil
}

// stillOfUse gives those former CA certificates that something may still have
// to verify against: no others of the current one's key, none that expired, each
// once, and not too many: they come from objects that others may write.
func stillOfUse(former []*x509.Certificate, current *x509.Certificate, now time.Time) []*x509.Certificate {
	var of []*x509.Certificate
	for _, c := range former {
		known := slices.ContainsFunc(of, c.Equal)
		if c.IsCA && !known && now.Before(c.NotAfter) && !sameKey(c, current) && len(of) < maxFormer {
			of = append(of, c)
		}
	}
	return of
}

func sameKey(a, b *x509.Certificate) bool {
	return slices.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo)
}

// leaf makes a serving certificate for the names, with a key of its own. It
// does not outlive the authority.
func (a *authority) leaf(now time.Time, lifetime time.Duration, dnsNames []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	notAfter := now.Add(lifetime)
	if notAfter.After(a.certificate.NotAfter) {
		notAfter = a.certificate.NotAfter
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: dnsNames[0]},
		DNSNames:              dnsNames,
		NotBefore:             now.Add(-backdate),
		NotAfter:              notAfter,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := sign(template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make a serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}, nil
}

// maxSerial is one more than the largest serial number: RFC 5280, section
// 4.1.2.2, allows 20 octets, the first bit being the sign.
var maxSerial = new(big.Int).Lsh(big.NewInt(1), 159)

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, maxSerial)
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// signed says whether the authority's key signed the leaf.
func (a *authority) signed(leaf *x509.Certificate) bool {
	return leaf.CheckSignatureFrom(a.certificate) == nil
}

// renewAt is when the certificate is due: when two thirds of its life are over.
func renewAt(c *x509.Certificate) time.Time {
	issued := c.NotBefore.Add(backdate)
	return issued.Add(c.NotAfter.Sub(issued) * 2 / 3)
}

// forgetAt is when no leaf of a former key is left, where leaves live for
// leafLifetime.
func (a *authority) forgetAt(leafLifetime time.Duration) time.Time {
	return a.certificate.NotBefore.Add(backdate + leafLifetime)
}

// bundle is what clients have to trust, in PEM: the current certificate first.
func (a *authority) bundle() ([]byte, error) {
	return cert.EncodeCertificates(append([]*x509.Certificate{a.certificate}, a.former...)...)
}

// encode gives the data of the Secret.
func (a *authority) encode() (map[string][]byte, error) {
	certificate, err := cert.EncodeCertificates(a.certificate)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(a.key)
	if err != nil {
		return nil, err
	}
	bundle, err := a.bundle()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{certificateKey: certificate, privateKeyKey: key, bundleKey: bundle}, nil
}

// decodeAuthority reads the data of the Secret. The error says what is wrong
// with it, and nothing of what it is.
func decodeAuthority(data map[string][]byte, now time.Time) (*authority, error) {
	key, err := decodeKey(data[privateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", privateKeyKey, err)
	}
	certificates, err := cert.ParseCertsPEM(data[certificateKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certificateKey, err)
	}
	current := certificates[0]
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !public.Equal(current.PublicKey):
		return nil, fmt.Errorf("%s: it is not the certificate of %s", certificateKey, privateKeyKey)
	case !current.IsCA || current.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("%s: it is not the certificate of a CA", certificateKey)
	case now.After(current.NotAfter):
		return nil, fmt.Errorf("%s: it expired at %s", certificateKey, current.NotAfter.UTC().Format(time.RFC3339))
	}
	return &authority{certificate: current, key: key, former: stillOfUse(decodeBundle(data[bundleKey]), current, now)}, nil
}

func decodeKey(text []byte) (crypto.Signer, error) {
	if len(text) == 0 {
		return nil, errors.New("it is not there")
	}
	// The library's error may hold what it could not read.
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, errors.New("it is not a private key in PEM")
	}
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		return key, nil
	case *rsa.PrivateKey:
		return key, nil
	}
	return nil, fmt.Errorf("got a %T, want an ECDSA or RSA key", key)
}

// decodeBundle gives what certificates there are; a bundle that is no PEM has
// none.
func decodeBundle(text []byte) []*x509.Certificate {
	certificates, err := cert.ParseCertsPEM(text)
	if err != nil {
		return nil
	}
	return certificates
}

// holds says whether a bundle has the certificate.
func holds(bundle []byte, certificate *x509.Certificate) bool {
	return slices.ContainsFunc(decodeBundle(bundle), certificate.Equal)
}
