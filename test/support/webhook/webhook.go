// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook runs lanyard-webhook as a process against a control plane and
// registers it with the manifests of deploy/.
package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
)

// Options configures the process.
type Options struct {
	// Binary is the path of the compiled program.
	Binary string
	// Kubeconfig is a file for the webhook's client.
	Kubeconfig string
	// Dir is an existing directory for the certificate and the log.
	Dir string
	// Port is the port of the webhook server; a free one if empty.
	Port string
	// Args are appended to the arguments that every standalone webhook needs.
	// They take precedence over these.
	Args []string
	// Prepare changes the command before it is started, if set.
	Prepare func(*exec.Cmd)
}

// Process is a running webhook.
type Process struct {
	// URL is the address of the webhook server: https://127.0.0.1:PORT.
	URL string
	// CA is the PEM certificate of the CA that signed the serving certificate.
	CA []byte
	// MetricsURL and HealthURL are the addresses of the metrics and of the
	// health endpoints.
	MetricsURL, HealthURL string

	// Process is the running program; its LogFile holds the program's log.
	*process.Process
}

// Start runs the webhook and returns when it is ready. The caller must stop it.
func Start(ctx context.Context, o Options) (*Process, error) {
	p, err := Launch(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Launch runs the webhook and returns at once. The caller must stop it;
// cancelling ctx does not.
func Launch(ctx context.Context, o Options) (*Process, error) {
	cert, key, ca, err := controlplane.NewServingCertificate(o.Dir, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	ports, err := FreePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	if o.Port != "" {
		ports[0] = o.Port
	}
	// No context: Stop ends the process, so that it can shut down gracefully.
	cmd := exec.Command(o.Binary, append([]string{ //nolint:noctx // see above
		"--kubeconfig", o.Kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", ports[0],
		"--metrics-bind-address", "127.0.0.1:" + ports[1],
		"--health-probe-bind-address", "127.0.0.1:" + ports[2],
		"--certificate-source", "files", "--tls-cert-file", cert, "--tls-private-key-file", key,
		"--shutdown-delay", "0s",
	}, o.Args...)...)
	if o.Prepare != nil {
		o.Prepare(cmd)
	}
	running, err := process.Start(cmd, filepath.Join(o.Dir, "lanyard-webhook.log"))
	if err != nil {
		return nil, err
	}
	return &Process{
		URL:        "https://127.0.0.1:" + ports[0],
		CA:         ca,
		MetricsURL: "http://127.0.0.1:" + ports[1] + "/metrics",
		HealthURL:  "http://127.0.0.1:" + ports[2],
		Process:    running,
	}, nil
}

// waitReady returns when the webhook is ready, or an error if it ends first.
func (p *Process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, controlplane.Patience)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- controlplane.WaitReady(ctx, p.HealthURL+"/readyz") }()
	select {
	case err := <-ready:
		if err != nil {
			return fmt.Errorf("webhook is not ready: %w%s", err, process.Tail(p.LogFile))
		}
		return nil
	case <-p.Done():
		return fmt.Errorf("webhook ended: %w%s", p.Err(), process.Tail(p.LogFile))
	}
}

// Client returns an HTTP client that trusts the webhook. It keeps no connection open.
func (p *Process) Client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true,
		DisableKeepAlives: true,
	}}
}

// FreePorts returns different ports of the loopback interface that are free at
// the moment. They are below the ports that the system gives to connections and
// to listeners without a port, so no other program takes one by accident.
func FreePorts(ctx context.Context, n int) ([]string, error) {
	const first, end, attempts = 20_000, 32_000, 1_000
	var ports []string
	for range attempts {
		if len(ports) == n {
			return ports, nil
		}
		port := strconv.Itoa(first + rand.IntN(end-first))
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		// Close the listeners only at the end, so that each port is different.
		defer listener.Close()
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports from %d to %d: got %d after %d attempts", n, first, end-1, len(ports), attempts)
}
