// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"time"

	"github.com/cert-manager/cert-manager/pkg/api/util"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	caName    = "lanyard-webhook-ca"
	caSecret  = "lanyard-webhook-cert-manager-ca"
	leafName  = "lanyard-webhook-tls"
	serverDNS = "lanyard-webhook.lanyard-system.svc"
)

var _ = Describe("The chain of a self-signed CA and a leaf under it", Ordered, func() {
	// The results of the previous specs, to compare each renewal with.
	var ca, leaf *x509.Certificate
	var bundle []byte

	BeforeAll(func(ctx SpecContext) {
		for _, object := range append(chain(), webhookConfiguration()) {
			Expect(kube.Create(ctx, object)).To(Succeed())
		}
	})

	It("is issued, and its CA is injected into the caBundle", func(ctx SpecContext) {
		ca = issued(ctx, caSecret, nil)
		leaf = issued(ctx, leafName, nil)
		bundle = injected(ctx, nil)
		Expect(serials(bundle)).To(Equal([]string{serial(ca)}))
		Expect(verify(leaf, bundle)).To(Succeed())
	})

	It("has a new leaf with a new key under the same CA after the leaf is renewed", func(ctx SpecContext) {
		renew(ctx, leafName)
		renewed := issued(ctx, leafName, leaf)
		Expect(renewed.RawSubjectPublicKeyInfo).NotTo(Equal(leaf.RawSubjectPublicKeyInfo))
		Expect(verify(renewed, bundle)).To(Succeed())
		Expect(caBundle(ctx)).To(Equal(bundle), "the renewal of a leaf changed what is trusted")
		leaf = renewed
	})

	It("keeps the CA's key when the CA is renewed, so that old and new certificates verify against each other", func(ctx SpecContext) {
		renew(ctx, caName)
		renewedCA := issued(ctx, caSecret, ca)
		Expect(renewedCA.RawSubjectPublicKeyInfo).To(Equal(ca.RawSubjectPublicKeyInfo))
		// cainjector keeps previous CA certificates until they expire.
		Expect(serials(injected(ctx, bundle))).To(Equal([]string{serial(ca), serial(renewedCA)}))
		Expect(verify(leaf, encode(renewedCA))).To(Succeed(), "the old leaf with only the new CA")

		renew(ctx, leafName)
		renewedLeaf := issued(ctx, leafName, leaf)
		Expect(verify(renewedLeaf, encode(renewedCA))).To(Succeed())
		Expect(verify(renewedLeaf, encode(ca))).To(Succeed(), "the new leaf with only the old CA")
	})
})

// chain returns the objects of the certificate mode: issuer, CA, issuer, leaf.
func chain() []client.Object {
	return []client.Object{
		&certmanagerv1.Issuer{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lanyard-webhook-selfsigned"},
			Spec: certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{
				SelfSigned: &certmanagerv1.SelfSignedIssuer{},
			}},
		},
		certificate(caName, certmanagerv1.CertificateSpec{
			IsCA: true, CommonName: caName, SecretName: caSecret,
			Duration:   &metav1.Duration{Duration: 5 * 365 * 24 * time.Hour},
			IssuerRef:  cmmeta.IssuerReference{Name: "lanyard-webhook-selfsigned"},
			PrivateKey: privateKey(certmanagerv1.RotationPolicyNever),
		}),
		&certmanagerv1.Issuer{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: caName},
			Spec: certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{
				CA: &certmanagerv1.CAIssuer{SecretName: caSecret},
			}},
		},
		certificate(leafName, certmanagerv1.CertificateSpec{
			DNSNames: []string{serverDNS}, SecretName: leafName,
			Duration:   &metav1.Duration{Duration: 24 * time.Hour},
			IssuerRef:  cmmeta.IssuerReference{Name: caName},
			Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth},
			PrivateKey: privateKey(certmanagerv1.RotationPolicyAlways),
		}),
	}
}

func certificate(name string, spec certmanagerv1.CertificateSpec) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
}

func privateKey(rotation certmanagerv1.PrivateKeyRotationPolicy) *certmanagerv1.CertificatePrivateKey {
	return &certmanagerv1.CertificatePrivateKey{
		Algorithm: certmanagerv1.ECDSAKeyAlgorithm, Size: 256, RotationPolicy: rotation,
	}
}

// webhookConfiguration requests the CA from cainjector. It matches no requests.
func webhookConfiguration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "lanyard",
			Annotations: map[string]string{certmanagerv1.WantInjectAnnotation: namespace + "/" + caName},
		},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "nothing.lanyard.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// renew requests a new certificate as "cmctl renew" does.
func renew(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var certificate certmanagerv1.Certificate
		g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &certificate)).To(Succeed())
		// Wait until the previous issuance has ended: it removes the condition, and the request
		// would be lost.
		for condition, status := range map[certmanagerv1.CertificateConditionType]bool{
			certmanagerv1.CertificateConditionReady: true, certmanagerv1.CertificateConditionIssuing: false,
		} {
			is := util.CertificateHasCondition(&certificate, certmanagerv1.CertificateCondition{Type: condition, Status: cmmeta.ConditionTrue})
			g.Expect(is).To(Equal(status), "condition %s", condition)
		}
		util.SetCertificateCondition(&certificate, certificate.Generation, certmanagerv1.CertificateConditionIssuing,
			cmmeta.ConditionTrue, "ManuallyTriggered", "Certificate re-issuance manually triggered")
		g.Expect(kube.Status().Update(ctx, &certificate)).To(Succeed()) // may conflict with an update of a controller
	}).Should(Succeed())
}

// issued waits until the Secret holds a certificate that differs from the
// previous one.
func issued(ctx context.Context, secretName string, before *x509.Certificate) *x509.Certificate {
	GinkgoHelper()
	var found *x509.Certificate
	Eventually(func(g Gomega) {
		var secret corev1.Secret
		g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: secretName}, &secret)).To(Succeed())
		chain, err := certutil.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
		g.Expect(err).NotTo(HaveOccurred())
		found = chain[0]
		g.Expect(before != nil && found.Equal(before)).To(BeFalse(), "still the previous certificate")
	}).Should(Succeed())
	return found
}

// injected waits until the caBundle differs from the previous one.
func injected(ctx context.Context, before []byte) []byte {
	GinkgoHelper()
	var found []byte
	Eventually(func() bool {
		found = caBundle(ctx)
		return bytes.Equal(found, before)
	}).Should(BeFalse(), "still the previous caBundle")
	return found
}

func caBundle(ctx context.Context) []byte {
	GinkgoHelper()
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	Expect(kube.Get(ctx, client.ObjectKey{Name: "lanyard"}, &configuration)).To(Succeed())
	return configuration.Webhooks[0].ClientConfig.CABundle
}

// serials returns the serial numbers of the certificates in a bundle, in its
// order.
func serials(bundle []byte) []string {
	GinkgoHelper()
	certificates, err := certutil.ParseCertsPEM(bundle)
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, certificate := range certificates {
		found = append(found, serial(certificate))
	}
	return found
}

func serial(certificate *x509.Certificate) string {
	return certificate.SerialNumber.Text(16)
}

func encode(certificate *x509.Certificate) []byte {
	GinkgoHelper()
	text, err := certutil.EncodeCertificates(certificate)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// verify verifies the leaf as an API server that trusts the bundle does.
func verify(leaf *x509.Certificate, bundle []byte) error {
	GinkgoHelper()
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(bundle)).To(BeTrue())
	_, err := leaf.Verify(x509.VerifyOptions{
		DNSName: serverDNS, Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}
