// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/cert"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

const (
	// logInterval is the time between log lines about denied callers, because any pod can
	// cause them.
	logInterval = time.Second
	// maxName and maxProblem limit the logged parts of a caller's certificate, in
	// bytes.
	maxName, maxProblem = 64, 160
	// maxChain limits the certificates of a caller: its own, two intermediate CAs, and the
	// root, which some send. Each takes time to verify.
	maxChain = 4
)

// Verifier accepts callers with a client certificate that a CA issued. Create it with NewVerifier.
type Verifier struct {
	caFile string
	names  []string
	log    logr.Logger
	files  *Files
	roots  atomic.Pointer[x509.CertPool]

	denied atomic.Int64 // callers since the last log line
	lines  rate.Sometimes
}

// NewVerifier returns a Verifier for the CA certificates in the PEM file caFile. If there
// are names, the certificate must have one of them as its common name or among its
// DNS names.
func NewVerifier(caFile string, names []string, log logr.Logger) (*Verifier, error) {
	v := &Verifier{caFile: caFile, names: names, log: log, lines: rate.Sometimes{Interval: logInterval}}
	v.files = NewFiles(v.use, log, caFile)
	if err := v.files.Load(); err != nil {
		return nil, fmt.Errorf("read CA certificates of callers from %s: %w", caFile, err)
	}
	return v, nil
}

// use takes the content of the CA file.
func (v *Verifier) use(contents [][]byte) error {
	if err := CheckPEM(contents[0]); err != nil {
		return err
	}
	certificates, err := cert.ParseCertsPEM(contents[0])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	for _, c := range certificates {
		roots.AddCert(c)
	}
	v.roots.Store(roots)
	v.log.Info("Loaded CA certificates of callers", "file", v.caFile, "certificates", len(certificates))
	return nil
}

// Start reloads the CA file when it changes, until ctx is done. If the file is invalid, the
// current certificates stay. Changes apply to new connections.
func (v *Verifier) Start(ctx context.Context) error { return v.files.Start(ctx) }

// Configure makes a server with this configuration deny other callers.
//
// Only VerifyConnection decides. crypto/tls calls it for every connection, including resumed
// sessions and connections without a certificate. So removed CA certificates and names also
// apply to resumed sessions, and each denied caller is logged. tls.RequireAndVerifyClientCert
// would do neither.
func (v *Verifier) Configure(config *tls.Config) {
	config.ClientAuth = tls.RequestClientCert
	config.VerifyConnection = v.verifyConnection
}

func (v *Verifier) verifyConnection(state tls.ConnectionState) error {
	err := v.check(state.PeerCertificates)
	if err != nil {
		v.denied.Add(1)
		v.lines.Do(func() {
			v.log.Info("Denied callers", "count", v.denied.Swap(0), "last", err.Error())
		})
	}
	return err
}

// check returns an error unless the caller with this certificate chain may connect.
// crypto/tls has verified that the caller has the key of the first certificate. The error is
// short, whatever the certificates contain.
func (v *Verifier) check(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("got no client certificate")
	}
	if len(chain) > maxChain {
		return fmt.Errorf("got a chain of %d client certificates, want at most %d", len(chain), maxChain)
	}
	caller := chain[0]
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	name := texts.Cut(caller.Subject.CommonName, maxName)
	if _, err := caller.Verify(x509.VerifyOptions{
		Roots: v.roots.Load(), Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return fmt.Errorf("client certificate of %q: %s", name, texts.Cut(err.Error(), maxProblem))
	}
	if len(v.names) > 0 && !slices.ContainsFunc(v.names, func(name string) bool {
		return name == caller.Subject.CommonName || slices.Contains(caller.DNSNames, name)
	}) {
		return fmt.Errorf("client certificate of %q: the name is not allowed", name)
	}
	return nil
}
