// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

func TestParse(t *testing.T) {
	t.Parallel()
	files := []string{"--trust", "t", "--tls-cert-file", "c", "--tls-private-key-file", "k"}
	tests := map[string]struct {
		args    []string
		wantErr string
	}{
		"only the three files":          {args: files},
		"with addresses and kubeconfig": {args: append(files[:6:6], "--bind-address", ":1", "--health-probe-bind-address", ":2", "--kubeconfig", "x")},
		"nothing":                       {wantErr: "--trust"},
		"no key":                        {args: files[:4], wantErr: "--tls-private-key-file"},
		"an argument":                   {args: append(files[:6:6], "x"), wantErr: "no arguments"},
		"an unknown flag":               {args: append(files[:6:6], "--x"), wantErr: "not defined"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(test.args, io.Discard)
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("got %v, want %q", err, test.wantErr)
			}
		})
	}
}

// program is a running program, whose files are in dir.
type program struct {
	clouds, probes string
	client         *http.Client
	stdout, stderr *output
	end            context.CancelFunc
	ended          chan error
}

func start(t *testing.T, cluster *issuertest.Cluster) program {
	t.Helper()
	directory := t.TempDir()
	write := func(name string, content []byte) string {
		file := filepath.Join(directory, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	serving, err := controlplane.NewServingPEM(emulator.Hosts()...)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, cluster.Server())
	ports, err := webhook.FreePorts(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p := program{clouds: "127.0.0.1:" + ports[0], probes: "127.0.0.1:" + ports[1], stdout: &output{}, stderr: &output{}, ended: make(chan error, 1)}
	args := []string{
		"--trust", write("trust.yaml", []byte("entra: {tenants: [{tenantId: contoso.example}]}")),
		"--tls-cert-file", write("tls.crt", serving.Cert), "--tls-private-key-file", write("tls.key", serving.Key),
		"--kubeconfig", write("kubeconfig", []byte(kubeconfig)),
		"--bind-address", p.clouds, "--health-probe-bind-address", p.probes,
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(serving.CA)
	// As with hostAliases, the host names are real, and the address is the program's.
	p.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.clouds)
		},
	}}
	t.Cleanup(p.client.CloseIdleConnections)
	ctx, cancel := context.WithCancel(t.Context())
	p.end = cancel
	go func() { p.ended <- run(ctx, args, p.stdout, p.stderr) }()
	return p
}

// patience limits each wait: a busy machine may be several times slower.
const patience = 10 * time.Minute

// waitReady waits until /readyz returns the status.
func (p program) waitReady(t *testing.T, want int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		response, err := http.Get("http://" + p.probes + "/readyz")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == want {
				return
			}
		}
		select {
		case err := <-p.ended:
			t.Fatalf("the program ended with %v and %s", err, p.stderr)
		case <-deadline:
			t.Fatalf("got %v and error %v, want status %d", response, err, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	cluster := issuertest.Start(t, issuertest.RSA(t, "key-1"))
	cluster.SetDown(true)
	p := start(t, cluster)
	p.waitReady(t, http.StatusServiceUnavailable)
	cluster.SetDown(false)
	p.waitReady(t, http.StatusOK)
	for _, host := range emulator.Hosts() {
		response, err := p.client.Get("https://" + host + "/")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	response, err := p.client.PostForm("https://login.microsoftonline.com/contoso.example/oauth2/v2.0/token", url.Values{"grant_type": {"client_credentials"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	var entry journal.Entry
	if err := json.Unmarshal([]byte(p.stdout.String()), &entry); err != nil || entry.Code != "AADSTS900144" {
		t.Errorf("got %q and error %v, want one entry", p.stdout, err)
	}
	if p.stderr.String() != "" {
		t.Errorf("got %q on standard error, want nothing", p.stderr)
	}
	p.end()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("got error %v, want none", err)
		}
	case <-time.After(patience):
		t.Error("the program did not stop")
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	taken, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken[0].Close()
	ports, err := webhook.FreePorts(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	free := "127.0.0.1:" + ports[0]
	if _, err := listen(t.Context(), free, taken[0].Addr().String()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got error %v, want that the address is in use", err)
	}
	again, err := listen(t.Context(), free)
	if err != nil {
		t.Fatalf("got error %v, want that the first address is free again", err)
	}
	_ = again[0].Close()
}

// output can be read while it is being written.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
