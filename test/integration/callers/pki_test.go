// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package callers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// pki contains client certificates.
type pki struct {
	caFile                          string
	allowed, anotherName, anotherCA tls.Certificate
}

// newPKI writes ca.crt, and apiserver.crt and apiserver.key of the API server.
func newPKI(dir string) pki {
	GinkgoHelper()
	ca, foreign := newCertificate("callers", nil), newCertificate("callers", nil)
	p := pki{
		caFile:      filepath.Join(dir, "ca.crt"),
		allowed:     newCertificate("kube-apiserver", &ca),
		anotherName: newCertificate("kubelet", &ca),
		anotherCA:   newCertificate("kube-apiserver", &foreign),
	}
	key, err := x509.MarshalPKCS8PrivateKey(p.allowed.PrivateKey)
	Expect(err).NotTo(HaveOccurred())
	for file, block := range map[string]*pem.Block{
		"ca.crt":        {Type: "CERTIFICATE", Bytes: ca.Certificate[0]},
		"apiserver.crt": {Type: "CERTIFICATE", Bytes: p.allowed.Certificate[0]},
		"apiserver.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		Expect(os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600)).To(Succeed())
	}
	return p
}

// newCertificate returns a client certificate of the CA, or a CA.
func newCertificate(name string, ca *tls.Certificate) tls.Certificate {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	parent, signer := template, any(key)
	if ca == nil {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	} else {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	Expect(err).NotTo(HaveOccurred())
	leaf, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
