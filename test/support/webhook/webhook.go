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
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// Options configures the process.
type Options struct {
	// Binary is the path of the compiled program.
	Binary string
	// Kubeconfig is a file for the webhook's client.
	Kubeconfig string
	// Dir is an existing directory for the certificate and the log.
	Dir string
	// Args are appended to the arguments that every stand-alone webhook needs.
	// They take precedence over these.
	Args []string
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
	// LogFile holds the program's log.
	LogFile string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
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
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	p := &Process{
		URL:        "https://127.0.0.1:" + ports[0],
		CA:         ca,
		MetricsURL: "http://127.0.0.1:" + ports[1] + "/metrics",
		HealthURL:  "http://127.0.0.1:" + ports[2],
		LogFile:    filepath.Join(o.Dir, "lanyard-webhook.log"),
		done:       make(chan struct{}),
	}
	// The process gets a descriptor of its own.
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of the webhook: %w", err)
	}
	defer log.Close()
	// No context: the process ends with Stop, which lets it end well.
	p.cmd = exec.Command(o.Binary, append([]string{ //nolint:noctx // see above
		"--kubeconfig", o.Kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", ports[0],
		"--metrics-bind-address", "127.0.0.1:" + ports[1],
		"--health-probe-bind-address", "127.0.0.1:" + ports[2],
		"--certificate-source", "files", "--tls-cert-file", cert, "--tls-private-key-file", key,
		"--shutdown-delay", "0s",
	}, o.Args...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A terminal's Ctrl-C is for the caller, who then stops the process.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Binary, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// waitReady waits for readiness, but not for a process that has ended.
func (p *Process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- controlplane.WaitReady(ctx, p.HealthURL+"/readyz") }()
	select {
	case err := <-ready:
		if err != nil {
			return fmt.Errorf("webhook is not ready: %w\n%s", err, p.logTail())
		}
		return nil
	case <-p.done:
		return fmt.Errorf("webhook ended: %w\n%s", p.err, p.logTail())
	}
}

// logTail returns the end of the log.
func (p *Process) logTail() string {
	text, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the process with SIGTERM, waits for it, and gives an error if it
// did not end well.
func (p *Process) Stop() error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the webhook: %w", err)
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(time.Minute):
		return errors.Join(errors.New("webhook did not end within a minute of SIGTERM"), p.cmd.Process.Kill())
	}
}

// Client returns an HTTP client that trusts the webhook.
func (p *Process) Client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true,
	}}
}

// freePorts returns ports of the loopback interface that are free at the
// moment.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	for range n {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		// Close the listeners only at the end, so that each port is different.
		defer listener.Close()
		ports = append(ports, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
