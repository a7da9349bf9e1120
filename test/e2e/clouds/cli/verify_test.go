// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package cli_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	emulated "github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/memlimit"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// verifyMemory is the limit of the init container.
const verifyMemory = 32 << 20

// The program that is shipped presents tokens within the memory of its container: to one emulated
// cloud after the other, and to all of them.
func TestVerifyWithinItsMemory(t *testing.T) {
	t.Parallel()
	binary, err := webhook.Build(t.Context(), t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range clouds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identity := identityOf(t, test.annotations)
			token := cloud.Token{Issuer: issuertest.URL, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "cart"}}, Audience: identity.Audience}
			c := newVerifyCase(t, trustOf(t, identity, token), identity)

			out, message, err := c.run(t, binary)
			if err != nil || !strings.Contains(out, "accepts the token, as "+test.identity) || message != "" {
				t.Errorf("got error %v, message %q and output:\n%s", err, message, out)
			}
			if requests := c.proxy.requests(); len(requests) == 0 {
				t.Error("no request went through the proxy")
			}
		})
	}
	t.Run("no time", func(t *testing.T) {
		t.Parallel()
		identity := identityOf(t, clouds["AWS"].annotations)
		c := newVerifyCase(t, trustOf(t, identity, cloud.Token{Issuer: issuertest.URL, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "cart"}}, Audience: identity.Audience}), identity)
		if out, message, err := c.run(t, binary, "--timeout=1ns"); err == nil || !strings.Contains(message, "cannot reach AWS: context deadline exceeded") {
			t.Errorf("got error %v, message %q and output:\n%s", err, message, out)
		}
		if out, _, err := c.run(t, binary, "--timeout=0s"); err == nil || !strings.Contains(out, "--timeout: got 0s, want more than 0") {
			t.Errorf("got error %v and output:\n%s", err, out)
		}
	})
	for name, warn := range map[string]bool{"a refusal": false, "a refusal, with --warn": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identity := identityOf(t, clouds["AWS"].annotations)
			c := newVerifyCase(t, trustOf(t, identity, cloud.Token{Issuer: issuertest.URL, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "other"}}, Audience: identity.Audience}), identity)
			args := []string{}
			if warn {
				args = append(args, "--warn")
			}
			c.stopAfter = "AWS denies the token"
			out, message, err := c.run(t, binary, args...)
			if (err == nil) != warn {
				t.Errorf("got error %v and output:\n%s", err, out)
			}
			for _, want := range []string{
				"AWS denies the token of shop/cart: AccessDenied: ", "Cause: the role does not exist, or its trust policy names another issuer, subject or audience.",
				"Repair: let the trust policy of " + role + " name the issuer " + issuertest.URL + ", the subject " + issuertest.Subject,
				"Commands: lanyard trust aws cart --namespace shop",
			} {
				if !strings.Contains(message, want) {
					t.Errorf("got message:\n%s\nwant:\n%s", message, want)
				}
			}
		})
	}
}

// verifyCase is the environment of the init container of a pod.
type verifyCase struct {
	env       []string
	directory string
	token     string
	proxy     *proxy
	stopAfter string // the line of the log after which the pod is deleted
}

func newVerifyCase(t *testing.T, trusted emulated.Trust, identity *annotations.Identity) *verifyCase {
	t.Helper()
	key := issuertest.RSA(t, "key-1")
	handler, err := emulator.New(trusted, issuertest.Start(t, key).Issuer, journaltest.New().Journal)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := controlplane.NewServingPEM(emulator.Hosts()...)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)

	c := &verifyCase{directory: t.TempDir(), token: key.Sign(t, issuertest.Claims(identity.Audience, nil)), proxy: &proxy{to: server.Listener.Addr().String()}}
	front := httptest.NewServer(c.proxy)
	t.Cleanup(front.Close)
	injection := provider.NewInjection([]annotations.Identity{*identity}, &provider.Subject{
		Namespace: "shop", ServiceAccount: "cart", MountPath: c.directory, TokenExpirationSeconds: 3600,
	})
	p := &injection.Providers[0]
	c.write(t, p.Token.Path, c.token)
	if p.File.Path != "" {
		c.write(t, p.File.Path, p.File.Content)
	}
	c.write(t, "ca.crt", string(serving.CA))
	c.env = []string{"HTTPS_PROXY=" + front.URL, "SSL_CERT_FILE=" + filepath.Join(c.directory, "ca.crt")}
	for _, v := range p.Variables {
		c.env = append(c.env, v.Name+"="+v.Value)
	}
	return c
}

func (c *verifyCase) write(t *testing.T, path, text string) {
	t.Helper()
	file := filepath.Join(c.directory, path)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run runs the program under the limit. It returns the output and the termination message.
func (c *verifyCase) run(t *testing.T, binary string, args ...string) (out, message string, err error) {
	t.Helper()
	limit, err := memlimit.New(verifyMemory)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(c.directory, "termination-log")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"verify", "--termination-log", log}, args...)...)
	cmd.Env = c.env
	limit.Apply(cmd)
	output := &watched{until: c.stopAfter, found: func() { _ = cmd.Process.Signal(os.Interrupt) }}
	cmd.Stdout, cmd.Stderr = output, output
	err = cmd.Run()
	if kills, errKills := limit.Kills(); kills > 0 || errKills != nil {
		t.Errorf("got %d kills and error %v, want none", kills, errKills)
	}
	peak, errPeak := limit.Peak(cmd.Process.Pid)
	t.Logf("peak of %d KiB, limit enforced: %t, error %v", peak>>10, limit.Enforced(), errPeak)
	if errRemove := limit.Remove(); errRemove != nil {
		t.Error(errRemove)
	}
	text, errRead := os.ReadFile(log)
	if errRead != nil && !os.IsNotExist(errRead) {
		t.Error(errRead)
	}
	out, message = output.text.String(), string(text)
	if strings.Contains(out+message, c.token) {
		t.Errorf("the token is in the output:\n%s", out)
	}
	return out, message, err
}

// watched keeps the output, and calls found once after a text.
type watched struct {
	text  bytes.Buffer
	until string
	found func()
	once  sync.Once
}

// Write implements io.Writer.
func (w *watched) Write(p []byte) (int, error) {
	w.text.Write(p)
	if w.until != "" && bytes.Contains(w.text.Bytes(), []byte(w.until)) {
		w.once.Do(w.found)
	}
	return len(p), nil
}

// proxy connects each host with one address, for the method CONNECT.
type proxy struct {
	to string

	mu   sync.Mutex
	seen map[string]bool
}

func (p *proxy) requests() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[r.Host] = true
	p.mu.Unlock()
	there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", p.to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(there, buffered)
		_ = there.Close()
	}()
	_, _ = io.Copy(here, there)
}
