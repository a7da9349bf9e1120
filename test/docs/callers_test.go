// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The script creates a certificate with the name on the page, which the CA of the script verifies.
func TestTheCertificateOfCallers(t *testing.T) {
	script, err := filepath.Abs(filepath.Join(root, "examples/callers/certificates.sh"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), script)
	command.Dir = t.TempDir()
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	in := func(name string) string { return filepath.Join(command.Dir, name) }
	pair, err := tls.LoadX509KeyPair(in("apiserver.crt"), in("apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(in("callers-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if got := pair.Leaf.Subject.CommonName; got != "kube-apiserver" {
		t.Errorf("got the name %q, want kube-apiserver, as in allowedNames on the page", got)
	}
}
