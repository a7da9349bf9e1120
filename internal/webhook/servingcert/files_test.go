// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// patience is how long a test waits for an event.
const patience = 30 * time.Second

// pair is a certificate and its key, in PEM.
type pair struct{ certificate, key []byte }

func newPair(t *testing.T, name string, notBefore, notAfter time.Time) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(notAfter.Unix()), Subject: pkix.Name{CommonName: name},
		NotBefore: notBefore, NotAfter: notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}

// mount writes a directory as the kubelet does for a Secret: the files are links
// through ..data, which is replaced atomically.
func mount(t *testing.T, directory string, p pair) (certFile, keyFile string) {
	t.Helper()
	digest := sha256.Sum256(p.certificate)
	version := filepath.Join(directory, "..version-"+hex.EncodeToString(digest[:]))
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(version, "tls.crt"), p.certificate)
	write(t, filepath.Join(version, "tls.key"), p.key)
	link := filepath.Join(directory, "..data_tmp")
	if err := os.Symlink(filepath.Base(version), link); err != nil {
		t.Fatal(err)
	}
	old, err := filepath.EvalSymlinks(filepath.Join(directory, "..data"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(directory, "..data")); err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	if old != "" {
		if err := os.RemoveAll(old); err != nil {
			t.Fatal(err)
		}
		return certFile, keyFile
	}
	for _, name := range []string{certFile, keyFile} {
		if err := os.Symlink(filepath.Join("..data", filepath.Base(name)), name); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func commonName(t *testing.T, f *Files) string {
	t.Helper()
	certificate, err := f.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return certificate.Leaf.Subject.CommonName
}

func TestNewFilesReportsWhenTheCertificateExpires(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	certFile, keyFile := mount(t, t.TempDir(), newPair(t, "first", now, now.Add(time.Hour)))
	var reported []time.Time
	f, err := NewFiles(certFile, keyFile, func(notAfter time.Time) { reported = append(reported, notAfter) }, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if len(reported) == 0 {
		t.Fatal("onChange was not called")
	}
	for _, notAfter := range reported {
		if !notAfter.Equal(now.Add(time.Hour)) {
			t.Errorf("reported %s, want %s", notAfter, now.Add(time.Hour))
		}
	}
	if got := commonName(t, f); got != "first" || !f.Ready() {
		t.Errorf("serves the certificate of %q and is ready: %t, want first and true", got, f.Ready())
	}
}

func TestNewFilesRejectsInvalidFiles(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good, other := newPair(t, "good", now, now.Add(time.Hour)), newPair(t, "other", now, now.Add(time.Hour))
	tests := map[string]struct {
		certificate, key []byte // nil: there is no such file
		is               error  // nil: any
	}{
		"no certificate file":                {nil, good.key, fs.ErrNotExist},
		"no key file":                        {good.certificate, nil, fs.ErrNotExist},
		"an empty certificate file":          {[]byte{}, good.key, nil},
		"an empty key file":                  {good.certificate, []byte{}, nil},
		"a certificate file of another kind": {good.key, good.key, nil},
		"a key file of another kind":         {good.certificate, good.certificate, nil},
		"a key of another certificate":       {good.certificate, other.key, nil},
		"a certificate that was cut":         {good.certificate[:len(good.certificate)/2], good.key, nil},
		"an intermediate that was cut":       {slices.Concat(good.certificate, other.certificate[:len(other.certificate)/2]), good.key, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			certFile, keyFile := filepath.Join(directory, "serving.pem"), filepath.Join(directory, "serving-key.pem")
			if tt.certificate != nil {
				write(t, certFile, tt.certificate)
			}
			if tt.key != nil {
				write(t, keyFile, tt.key)
			}
			f, err := NewFiles(certFile, keyFile, func(time.Time) { t.Error("onChange was called for a rejected certificate") }, logr.Discard())
			if err == nil || f != nil {
				t.Fatalf("got %v and error %v, want only an error", f, err)
			}
			if want := "read serving certificate " + certFile + " and key " + keyFile + ": "; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("message: got %q, want the prefix %q", err, want)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %v in it", err, tt.is)
			}
			if strings.Contains(err.Error(), "PRIVATE KEY-----") {
				t.Errorf("the key is in the message: %v", err)
			}
		})
	}
}

// start runs f until the test ends.
func start(t *testing.T, f *Files) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- f.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-stopped:
			if err != nil {
				t.Errorf("stopped with %v", err)
			}
		case <-time.After(patience):
			t.Error("does not stop")
		}
	})
}

// await receives calls of onChange until one has the expiry want.
func await(t *testing.T, reported <-chan time.Time, want time.Time) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case notAfter := <-reported:
			if notAfter.Equal(want) {
				return
			}
		case <-timeout:
			t.Fatalf("onChange was not called with %s", want)
		}
	}
}

func TestFilesFollowARenewal(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	tests := map[string]func(t *testing.T, directory string, renewed pair){
		"a mounted Secret": func(t *testing.T, directory string, renewed pair) {
			t.Helper()
			mount(t, directory, renewed)
		},
		"files that are written in place": func(t *testing.T, directory string, renewed pair) {
			t.Helper()
			write(t, filepath.Join(directory, "tls.crt"), renewed.certificate)
			write(t, filepath.Join(directory, "tls.key"), renewed.key)
		},
	}
	for name, renew := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			certFile, keyFile := mount(t, directory, newPair(t, "first", now, now.Add(time.Hour)))
			reported := make(chan time.Time, 100)
			f, err := NewFiles(certFile, keyFile, func(notAfter time.Time) { reported <- notAfter }, logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			f.files.Interval = 10 * time.Millisecond
			start(t, f)
			renew(t, directory, newPair(t, "second", now, now.Add(2*time.Hour)))
			await(t, reported, now.Add(2*time.Hour))
			if got := commonName(t, f); got != "second" {
				t.Errorf("serves the certificate of %q, want second", got)
			}
			if err := f.checkAt(now.Add(90 * time.Minute)); err != nil {
				t.Errorf("after the first certificate's end: %v", err)
			}
		})
	}
}

// A renewal that failed must not stop serving.
func TestFilesKeepTheCertificateWhenTheNextOneIsBroken(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	directory := t.TempDir()
	certFile, keyFile := mount(t, directory, newPair(t, "first", now, now.Add(time.Hour)))
	reported := make(chan time.Time, 100)
	f, err := NewFiles(certFile, keyFile, func(notAfter time.Time) { reported <- notAfter }, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	mount(t, directory, pair{certificate: []byte("broken"), key: []byte("broken")})
	if err := f.files.Load(); err == nil {
		t.Fatal("the broken files were loaded without an error")
	}
	if got := commonName(t, f); got != "first" {
		t.Errorf("serves the certificate of %q, want first", got)
	}
	if err := f.Check(nil); err != nil {
		t.Errorf("the first certificate is still valid: %v", err)
	}
	mount(t, directory, newPair(t, "second", now, now.Add(2*time.Hour)))
	if err := f.files.Load(); err != nil {
		t.Fatal(err)
	}
	await(t, reported, now.Add(2*time.Hour))
	if got := commonName(t, f); got != "second" {
		t.Errorf("serves the certificate of %q, want second", got)
	}
}

func TestCheckFailsOutsideTheValidity(t *testing.T) {
	t.Parallel()
	notBefore := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	notAfter := time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)
	certFile, keyFile := mount(t, t.TempDir(), newPair(t, "first", notBefore, notAfter))
	f, err := NewFiles(certFile, keyFile, func(time.Time) {}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	const front = "serving certificate is valid from 2026-03-01T12:00:00Z to 2026-06-01T12:00:00Z, but the time is "
	tests := map[string]struct {
		now  time.Time
		want string // the error
	}{
		"a second before it begins":   {notBefore.Add(-time.Second), front + "2026-03-01T11:59:59Z"},
		"when it begins":              {notBefore, ""},
		"in the middle":               {notBefore.AddDate(0, 1, 0), ""},
		"when it ends":                {notAfter, ""},
		"a second after it ended":     {notAfter.Add(time.Second), front + "2026-06-01T12:00:01Z"},
		"long after, in another zone": {notAfter.AddDate(1, 0, 0).In(time.FixedZone("", 3600)), front + "2027-06-01T12:00:00Z"},
		"at the zero time":            {time.Time{}, front + "0001-01-01T00:00:00Z"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := f.checkAt(tt.now); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCheckUsesTheClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tests := map[string]struct {
		notBefore, notAfter time.Time
		valid               bool
	}{
		"a certificate of today":             {now.Add(-time.Hour), now.Add(time.Hour), true},
		"a certificate that ended":           {now.Add(-2 * time.Hour), now.Add(-time.Hour), false},
		"a certificate that is yet to begin": {now.Add(time.Hour), now.Add(2 * time.Hour), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certFile, keyFile := mount(t, t.TempDir(), newPair(t, "first", tt.notBefore, tt.notAfter))
			f, err := NewFiles(certFile, keyFile, func(time.Time) {}, logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Check(nil); (err == nil) != tt.valid {
				t.Errorf("got error %v, want valid %t", err, tt.valid)
			}
		})
	}
}
