// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const serverName = "lanyard-webhook.lanyard-system.svc"

// noon is the time of these tests.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func mustAuthority(t *testing.T, now time.Time, lifetime time.Duration, previous ...*x509.Certificate) *authority {
	t.Helper()
	a, err := certify(nil, now, lifetime, previous)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustLeaf(t *testing.T, a *authority, now time.Time, lifetime time.Duration) *x509.Certificate {
	t.Helper()
	leaf, err := a.leaf(now, lifetime, []string{serverName})
	if err != nil {
		t.Fatal(err)
	}
	return leaf.Leaf
}

// trusts verifies the leaf as an API server with the authority's bundle does.
func trusts(t *testing.T, a *authority, leaf *x509.Certificate, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.bundle())
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: serverName, CurrentTime: now})
	return err
}

func TestRenewalNeverBreaksTrust(t *testing.T) {
	t.Parallel()
	old := mustAuthority(t, noon, 90*time.Minute)
	oldLeaf := mustLeaf(t, old, noon, 2*time.Hour)
	later := noon.Add(time.Hour)
	renewed, err := certify(old.key, later, 90*time.Minute, old.previous)
	if err != nil {
		t.Fatal(err)
	}
	other := mustAuthority(t, later, 90*time.Minute, old.certificate)
	stranger := mustAuthority(t, later, 90*time.Minute)
	for name, test := range map[string]struct {
		bundle *authority
		leaf   *x509.Certificate
		want   bool
	}{
		"a leaf under its own CA":                              {old, oldLeaf, true},
		"a leaf of before the renewal of the CA":               {renewed, oldLeaf, true},
		"a leaf of the renewed CA, before it is in the bundle": {old, mustLeaf(t, renewed, later, time.Hour), true},
		"a leaf of the renewed CA":                             {renewed, mustLeaf(t, renewed, later, time.Hour), true},
		"a leaf of the previous CA with another key":           {other, oldLeaf, true},
		"a leaf of a new key":                                  {other, mustLeaf(t, other, later, time.Hour), true},
		"a leaf of a new key, before it is in the bundle":      {old, mustLeaf(t, other, later, time.Hour), false},
		"a leaf of a previous CA that was forgotten":           {&authority{certificate: other.certificate, key: other.key}, oldLeaf, false},
		"a leaf of another CA of the same name":                {stranger, oldLeaf, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := trusts(t, test.bundle, test.leaf, later.Add(time.Minute)); (err == nil) != test.want {
				t.Errorf("got %v, want trust: %t", err, test.want)
			}
		})
	}
	if !renewed.certificate.NotAfter.Equal(later.Add(90*time.Minute)) || renewed.certificate.SerialNumber.Cmp(old.certificate.SerialNumber) == 0 {
		t.Errorf("got serial %d until %s, want another serial and a whole lifetime", renewed.certificate.SerialNumber, renewed.certificate.NotAfter)
	}
}

func TestCertificatesAreRenewedAfterTwoThirdsOfTheirLifetime(t *testing.T) {
	t.Parallel()
	a := mustAuthority(t, noon, 90*time.Minute)
	if got, want := renewAt(a.certificate), noon.Add(time.Hour); !got.Equal(want) {
		t.Errorf("the CA is due at %s, want %s", got, want)
	}
	leaf := mustLeaf(t, a, noon, 30*time.Minute)
	if got, want := renewAt(leaf), noon.Add(20*time.Minute); !got.Equal(want) {
		t.Errorf("the leaf is due at %s, want %s", got, want)
	}
	if leaf := mustLeaf(t, a, noon.Add(80*time.Minute), 30*time.Minute); leaf.NotAfter.After(a.certificate.NotAfter) {
		t.Errorf("the leaf ends at %s, after its CA", leaf.NotAfter)
	}
	if leaf.NotBefore.After(noon.Add(-backdate)) || a.certificate.NotBefore.After(noon.Add(-backdate)) {
		t.Errorf("got %s and %s, want both valid for clocks that are behind", leaf.NotBefore, a.certificate.NotBefore)
	}
}

func TestALeafCanOnlyServe(t *testing.T) {
	t.Parallel()
	leaf := mustLeaf(t, mustAuthority(t, noon, time.Hour), noon, time.Hour)
	if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature || !cmp.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) ||
		!cmp.Equal(leaf.DNSNames, []string{serverName}) {
		t.Errorf("got CA %t, usages %v and %v, names %v", leaf.IsCA, leaf.KeyUsage, leaf.ExtKeyUsage, leaf.DNSNames)
	}
}

func TestALeafIsForNamesAndAddresses(t *testing.T) {
	t.Parallel()
	a := mustAuthority(t, noon, time.Hour)
	leaf, err := a.leaf(noon, time.Hour, []string{serverName, "192.0.2.1", "2001:db8::1"})
	if err != nil {
		t.Fatal(err)
	}
	// An API server verifies the host of the URL that it calls.
	for _, host := range []string{serverName, "192.0.2.1", "2001:db8::1"} {
		if err := leaf.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if err := leaf.Leaf.VerifyHostname("192.0.2.2"); err == nil {
		t.Error("the certificate is valid for another address")
	}
}

func TestOnlyUsefulPreviousCAsAreRetained(t *testing.T) {
	t.Parallel()
	previous := mustAuthority(t, noon, time.Hour)
	expired := mustAuthority(t, noon.Add(-2*time.Hour), time.Hour)
	current := mustAuthority(t, noon, time.Hour, previous.certificate, expired.certificate, previous.certificate, mustLeaf(t, previous, noon, time.Hour))
	if diff := cmp.Diff([]*x509.Certificate{previous.certificate}, current.previous); diff != "" {
		t.Errorf("previous (-want +got):\n%s", diff)
	}
	renewed, err := certify(current.key, noon, time.Hour, current.previous)
	if err != nil {
		t.Fatal(err)
	}
	if len(renewed.previous) != 1 {
		t.Errorf("got %d previous ones after the renewal, want 1 as before", len(renewed.previous))
	}
	again, err := certify(current.key, noon, time.Hour, []*x509.Certificate{current.certificate})
	if err != nil {
		t.Fatal(err)
	}
	if len(again.previous) != 0 {
		t.Errorf("got %d previous ones, want none with the current key", len(again.previous))
	}
	many := make([]*x509.Certificate, 0, 2*maxPrevious)
	for range 2 * maxPrevious {
		many = append(many, mustAuthority(t, noon, time.Hour).certificate)
	}
	if got := len(mustAuthority(t, noon, time.Hour, many...).previous); got != maxPrevious {
		t.Errorf("got %d previous ones, want at most %d", got, maxPrevious)
	}
}

func TestAReplicaNeedsOnlyTheSecret(t *testing.T) {
	t.Parallel()
	previous := mustAuthority(t, noon, time.Hour)
	want := mustAuthority(t, noon, time.Hour, previous.certificate)
	data, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeAuthority(data, noon)
	if err != nil {
		t.Fatal(err)
	}
	if !got.certificate.Equal(want.certificate) || !bytes.Equal(got.bundle(), data[bundleKey]) || mustLeaf(t, want, noon, time.Hour).CheckSignatureFrom(got.certificate) != nil {
		t.Error("the decoded authority differs from the encoded one")
	}
	// The previous CAs are optional.
	delete(data, bundleKey)
	if got, err := decodeAuthority(data, noon); err != nil || len(got.previous) != 0 {
		t.Errorf("got %v without a bundle, want only the authority", err)
	}
}

func TestErrorsOfADamagedSecret(t *testing.T) {
	t.Parallel()
	good, err := mustAuthority(t, noon, time.Hour).encode()
	if err != nil {
		t.Fatal(err)
	}
	other, err := mustAuthority(t, noon, time.Hour).encode()
	if err != nil {
		t.Fatal(err)
	}
	leaf := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: mustLeaf(t, mustAuthority(t, noon, time.Hour), noon, time.Hour).Raw})
	for name, test := range map[string]struct {
		key, value string
		now        time.Time
		want       string
	}{
		"no key":                        {privateKeyKey, "", noon, "tls.crt and tls.key: tls: failed to find any PEM data in key input"},
		"a key that is not PEM":         {privateKeyKey, "s3cr3t", noon, "tls.crt and tls.key: tls: failed to find any PEM data in key input"},
		"a key of another CA":           {privateKeyKey, string(other[privateKeyKey]), noon, "tls.crt and tls.key: tls: private key does not match public key"},
		"no certificate":                {certificateKey, "", noon, "tls.crt and tls.key: "},
		"a certificate that is not PEM": {certificateKey, "s3cr3t", noon, "tls.crt and tls.key: "},
		"a certificate of another CA":   {certificateKey, string(other[certificateKey]), noon, "tls.crt and tls.key: tls: private key does not match public key"},
		"a certificate of a leaf":       {certificateKey, string(leaf), noon, "tls.crt and tls.key: tls: private key does not match public key"},
		"a certificate that expired":    {"", "", noon.Add(2 * time.Hour), "tls.crt: expired at 2026-01-02T13:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := maps.Clone(good)
			data[test.key] = []byte(test.value)
			_, err := decodeAuthority(data, test.now)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("got %v, want %q, and no data", err, test.want)
			}
		})
	}
}

func TestACertificateThatIsNotACACannotSign(t *testing.T) {
	t.Parallel()
	a := mustAuthority(t, noon, time.Hour)
	leaf, err := a.leaf(noon, time.Hour, []string{serverName})
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	_, err = decodeAuthority(map[string][]byte{
		certificateKey: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Leaf.Raw}),
		privateKeyKey:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}, noon)
	if err == nil || err.Error() != "tls.crt: not the certificate of a CA" {
		t.Errorf("got %v, want that it is not a CA", err)
	}
}
