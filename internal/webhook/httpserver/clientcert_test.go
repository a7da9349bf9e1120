// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/util/cert"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// authority is a CA of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue returns a certificate with a new key, signed by the parent, or self-signed.
func issue(t *testing.T, template x509.Certificate, parent *authority) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent = &authority{&template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent.certificate, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	c := issue(t, x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	return &authority{c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)}
}

// caller returns a template of a client certificate.
func caller(commonName string, dnsNames ...string) x509.Certificate {
	return x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, DNSNames: dnsNames, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func writeCAs(t *testing.T, file string, authorities ...*authority) {
	t.Helper()
	certificates := make([]*x509.Certificate, len(authorities))
	for i, a := range authorities {
		certificates[i] = a.certificate
	}
	text, err := cert.EncodeCertificates(certificates...)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newVerifier returns a Verifier of the CA, and the file of the CA.
func newVerifier(t *testing.T, ca *authority, log logr.Logger, names ...string) (v *Verifier, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "ca.crt")
	writeCAs(t, file, ca)
	v, err := NewVerifier(file, names, log)
	if err != nil {
		t.Fatal(err)
	}
	return v, file
}

// serveVerified sends one byte to each client that v admits, until the test ends.
func serveVerified(t *testing.T, v *Verifier) *memnet.Listener {
	t.Helper()
	config := serverConfig(t)
	v.Configure(config)
	listener := memnet.Listen(connBuffer)
	var connections sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer conn.Close()
				_, _ = tls.Server(conn, config).Write([]byte{'.'})
				_, _ = io.Copy(io.Discard, conn) // the client may still write before it reads an alert
			})
		}
	})
	return listener
}

// connect reports whether the server accepts the client, and whether the session was resumed.
// Any error other than a TLS alert fails the test.
func connect(t *testing.T, listener *memnet.Listener, config *tls.Config) (admitted, resumed bool) {
	t.Helper()
	raw, err := listener.Dial(t.Context(), "10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, config)
	if err = conn.HandshakeContext(t.Context()); err == nil {
		// With TLS 1.3, the client learns of its denial when it reads.
		_, err = conn.Read(make([]byte, 1))
		resumed = conn.ConnectionState().DidResume
	}
	if err == nil {
		return true, resumed
	}
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Op != "remote error" {
		t.Fatalf("got %v, want a TLS alert of the server", err)
	}
	return false, resumed
}

func client(version uint16, certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, MinVersion: version, MaxVersion: version,
		Certificates: certificates, ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
}

// chain adds certificates of the CA, up to a number.
func chain(c tls.Certificate, ca *authority, length int) tls.Certificate {
	for len(c.Certificate) < length {
		c.Certificate = append(c.Certificate, ca.certificate.Raw)
	}
	return c
}

// A chain of 840 certificates used to cause 100 signature checks.
func TestALongChainIsDeniedBeforeItsSignaturesAreChecked(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	v, _ := newVerifier(t, ca, logr.Discard())
	leaf := issue(t, caller("anyone"), ca).Leaf
	err := v.check(append([]*x509.Certificate{leaf}, slices.Repeat([]*x509.Certificate{ca.certificate}, 840)...))
	if want := "got a chain of 841 client certificates, want at most 4"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}

// The bytes of the handshake and the first header are limited.
func TestACallerWithALongChainIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t, "ca")
		v, _ := newVerifier(t, ca, logr.Discard())
		config := serverConfig(t)
		v.Configure(config)
		listener := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, n)
		}), config, bounds.Reviews, always)
		transport := &http.Transport{DialContext: listener.DialContext("10.0.0.1"), TLSClientConfig: client(tls.VersionTLS13, longChain(t, ca))}
		for range 2 { // the second connection resumes the session of the first
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://lanyard", strings.NewReader(strings.Repeat("x", 1<<20)))
			if err != nil {
				t.Fatal(err)
			}
			response, err := (&http.Client{Transport: transport}).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if string(text) != "1048576" {
				t.Errorf("got %s %q, want the number of bytes", response.Status, text)
			}
			transport.CloseIdleConnections()
		}
	})
}

// longChain returns a chain of as many certificates as a caller may have, of 2 KB each, as with
// RSA keys of 4096 bits.
func longChain(t *testing.T, ca *authority) tls.Certificate {
	t.Helper()
	template := caller("anyone")
	for len(template.DNSNames) < 82 {
		template.DNSNames = append(template.DNSNames, fmt.Sprintf("api-%08d.example", len(template.DNSNames)))
	}
	certificate := issue(t, template, ca)
	if got := len(certificate.Certificate[0]); got < 2000 || got > 2200 {
		t.Errorf("got a certificate of %d bytes, want 2000 to 2200", got)
	}
	for len(certificate.Certificate) < maxChain {
		certificate.Certificate = append(certificate.Certificate, certificate.Certificate[0])
	}
	return certificate
}

func TestAcceptedClientCertificates(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t, "ours"), newAuthority(t, "ours") // of the same name
	expired, server := caller("kube-apiserver"), caller("kube-apiserver")
	expired.NotAfter = time.Now().Add(-time.Minute)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for name, test := range map[string]struct {
		allowed []string
		caller  []tls.Certificate
		want    bool
	}{
		"a certificate of the CA":                         {nil, []tls.Certificate{issue(t, caller("anyone"), ours)}, true},
		"no certificate":                                  {nil, nil, false},
		"a certificate of another CA":                     {nil, []tls.Certificate{issue(t, caller("kube-apiserver"), foreign)}, false},
		"a certificate that signed itself":                {nil, []tls.Certificate{issue(t, caller("kube-apiserver"), nil)}, false},
		"an expired certificate":                          {nil, []tls.Certificate{issue(t, expired, ours)}, false},
		"a certificate for servers":                       {nil, []tls.Certificate{issue(t, server, ours)}, false},
		"an allowed common name":                          {[]string{"x", "kube-apiserver"}, []tls.Certificate{issue(t, caller("kube-apiserver"), ours)}, true},
		"an allowed DNS name":                             {[]string{"kube-apiserver"}, []tls.Certificate{issue(t, caller("", "x", "kube-apiserver"), ours)}, true},
		"a name that is not allowed":                      {[]string{"kube-apiserver"}, []tls.Certificate{issue(t, caller("kubelet", "node"), ours)}, false},
		"a name that begins like an allowed one":          {[]string{"kube-apiserver"}, []tls.Certificate{issue(t, caller("kube-apiserver-2"), ours)}, false},
		"an allowed name in a certificate of another CA":  {[]string{"kube-apiserver"}, []tls.Certificate{issue(t, caller("kube-apiserver"), foreign)}, false},
		"no certificate, although names would be allowed": {[]string{"kube-apiserver"}, nil, false},
		"a chain of four certificates":                    {nil, []tls.Certificate{chain(issue(t, caller("anyone"), ours), ours, 4)}, true},
		"a chain of five certificates":                    {nil, []tls.Certificate{chain(issue(t, caller("anyone"), ours), ours, 5)}, false},
		"no name at all, if a name is needed":             {[]string{"kube-apiserver"}, []tls.Certificate{issue(t, caller(""), ours)}, false},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(name+", "+tls.VersionName(version), func(t *testing.T) {
				t.Parallel()
				v, _ := newVerifier(t, ours, logr.Discard(), test.allowed...)
				listener, config := serveVerified(t, v), client(version, test.caller...)
				if got, _ := connect(t, listener, config); got != test.want {
					t.Errorf("a new connection: got admitted %t, want %t", got, test.want)
				}
				got, resumed := connect(t, listener, config)
				if got != test.want || resumed != test.want {
					t.Errorf("a second connection: got admitted %t and resumed %t, want %t", got, resumed, test.want)
				}
			})
		}
	}
}

// Callers that are no longer allowed are denied at once, even if they resume an earlier
// session.
func TestAChangedCAFileCountsForResumedSessions(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				before, after := newAuthority(t, "before"), newAuthority(t, "after")
				v, file := newVerifier(t, before, logr.Discard())
				go func() { _ = v.Start(t.Context()) }()
				listener := serveVerified(t, v)
				old, next := client(version, issue(t, caller("a"), before)), client(version, issue(t, caller("a"), after))
				wantAdmitted := func(what string, config *tls.Config, want bool) {
					t.Helper()
					if got, _ := connect(t, listener, config); got != want {
						t.Fatalf("%s: got admitted %t, want %t", what, got, want)
					}
				}
				change := func(write func()) {
					write()
					time.Sleep(defaultInterval)
					synctest.Wait()
				}
				wantAdmitted("the old CA", old, true)
				wantAdmitted("the next CA, which is not in the file yet", next, false)
				change(func() { writeCAs(t, file, before, after) })
				wantAdmitted("the next CA", next, true)
				if got, resumed := connect(t, listener, old); !got || !resumed {
					t.Errorf("the old CA, next to the new one: got admitted %t and resumed %t, want both", got, resumed)
				}
				change(func() { writeCAs(t, file, after) })
				wantAdmitted("the old CA, after it was removed", old, false)
				change(func() {
					if err := os.WriteFile(file, []byte("broken"), 0o600); err != nil {
						t.Fatal(err)
					}
				})
				wantAdmitted("the next CA, with a broken file", next, true)
				change(func() {
					writeCAs(t, file, before, after)
					whole, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, whole[:len(whole)-100], 0o600); err != nil {
						t.Fatal(err)
					}
				})
				wantAdmitted("the next CA, while both are being written", next, true)
			})
		})
	}
}

// journal collects log lines.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, args)
	}, funcr.Options{})
}

func (j *journal) about(text string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func TestDeniedCallersFillNoLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines journal
		v, _ := newVerifier(t, newAuthority(t, "ca"), lines.logger())
		long := issue(t, caller(strings.Repeat("n", 20_000)), newAuthority(t, strings.Repeat("a", 20_000)))
		for range 100 {
			if err := v.verifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{long.Leaf}}); err == nil {
				t.Fatal("got no error")
			} else if len(err.Error()) > 400 {
				t.Fatalf("got an error of %d bytes, want at most 400", len(err.Error()))
			}
		}
		got := lines.about("Denied callers")
		if len(got) != 1 || !strings.Contains(got[0], `"count"=1 `) {
			t.Fatalf("got %.300q for 100 callers at once, want one line about the first", got)
		}
		if len(got[0]) > 500 || strings.Contains(got[0], strings.Repeat("n", maxName+1)) {
			t.Errorf("got a line of %d bytes, want a cut name: %s", len(got[0]), got[0])
		}
		time.Sleep(time.Second)
		_ = v.verifyConnection(tls.ConnectionState{})
		if got := lines.about("got no client certificate"); len(got) != 1 || !strings.Contains(got[0], `"count"=100 `) {
			t.Errorf("got %q a second later, want a line that counts the callers since the last one", got)
		}
	})
}

func TestNewVerifierRejectsAnInvalidCAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := NewVerifier(file, nil, logr.Discard()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	if err := os.WriteFile(file, []byte("s3cr3t"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := NewVerifier(file, nil, logr.Discard())
	if err == nil || !strings.HasPrefix(err.Error(), "read CA certificates of callers from "+file+": ") || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("no PEM: got %v", err)
	}
}
