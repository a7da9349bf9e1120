// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// peersDir holds the programs that hack/bench-peers.sh builds.
const peersDir = "bin/bench-peers"

// peer is another webhook, and the ServiceAccount whose pods it injects. Lanyard gets the
// same requests, and injects the same cloud.
type peer struct {
	name, cloud string
	own         map[string]string // its annotations
	lanyard     string            // the prefix of Lanyard's annotations for the cloud
	path        string
	port        string // if it is fixed
	args        []string
}

func (p *peer) account() string { return "app-of-" + p.name }

// peers returns the three webhooks. In the arguments, CERT, KEY, DIR, KUBECONFIG and PORT
// are placeholders.
func peers() []peer {
	identity := identity(0)
	return []peer{
		{
			name: "eks", cloud: "AWS", lanyard: "lanyard.dev/aws-", path: "/mutate",
			own:  map[string]string{"eks.amazonaws.com/role-arn": identity["lanyard.dev/aws-role-arn"]},
			args: []string{"--in-cluster=false", "--kubeconfig=KUBECONFIG", "--port=PORT", "--metrics-port=0", "--tls-cert=CERT", "--tls-key=KEY"},
		}, {
			name: "azure", cloud: "Azure", lanyard: "lanyard.dev/azure-", path: "/mutate-v1-pod", port: "9443",
			own:  map[string]string{"azure.workload.identity/client-id": identity["lanyard.dev/azure-client-id"]},
			args: []string{"--disable-cert-rotation", "--webhook-cert-dir=DIR", "--health-addr=0", "--metrics-addr=0"},
		}, {
			name: "pfnet", cloud: "Google", lanyard: "lanyard.dev/gcp-", path: "/mutate-v1-pod", port: "9444",
			own: map[string]string{
				"cloud.google.com/workload-identity-provider": identity["lanyard.dev/gcp-workload-identity-provider"],
				"cloud.google.com/service-account-email":      identity["lanyard.dev/gcp-service-account"],
			},
			args: []string{"-health-probe-bind-address=0", "-metrics-bind-address=0"},
		},
	}
}

// peers measures the CPU of Lanyard and of three other webhooks for the same requests.
func (b *bench) peers(ctx context.Context) (*outcome, error) {
	if _, err := os.Stat(peersDir); err != nil {
		return nil, fmt.Errorf("%w; run hack/bench-peers.sh first", err)
	}
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	cases, err := b.preparePeers(ctx, c)
	if err != nil {
		return nil, err
	}
	trials, err := b.rounds(ctx, cases, either(b, 16, 3))
	if err != nil {
		return nil, err
	}
	result := b.outcome(c, "HTTP/1.1, 8 connections")
	t := result.table("peers", "Webhook", "version", "injects", "CPU per request, 2 containers, ms", "20 containers, ms")
	p := plot{Name: "peers", Title: "CPU for one pod, in milliseconds", Groups: []group{{Name: "2 containers"}, {Name: "20 containers"}}}
	row := func(name, version, clouds string) {
		cells := []any{name, version, clouds}
		for i, containers := range loadContainers() {
			cpu := medianOf(trials[loadKey{name + clouds, containers}], func(t trial) float64 { return t.CPU / 1000 })
			cells = append(cells, cpu)
			p.Groups[i].Bars = append(p.Groups[i].Bars, bar{strings.TrimSuffix(name+", "+clouds, ", "), cpu})
		}
		t.add(cells...)
	}
	for _, peer := range peers() {
		version, err := os.ReadFile(filepath.Join(peersDir, peer.name+".version"))
		if err != nil {
			return nil, err
		}
		row(peer.name, strings.TrimSpace(string(version)), peer.cloud)
		row("Lanyard", "", peer.cloud)
	}
	row("Lanyard", "", "all three")
	row("baseline", "", "")
	result.Plots = []plot{p}
	return result, nil
}

// preparePeers starts all webhooks and captures the requests for them.
func (b *bench) preparePeers(ctx context.Context, c *cluster) ([]loadCase, error) {
	const namespace = "team"
	if err := c.createNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	accounts := []string{threeClouds}
	for _, p := range peers() {
		annotations := maps.Clone(p.own)
		for key, value := range identity(0) {
			if strings.HasPrefix(key, p.lanyard) {
				annotations[key] = value
			}
		}
		if err := c.createAccount(ctx, namespace, p.account(), annotations); err != nil {
			return nil, err
		}
		accounts = append(accounts, p.account())
	}
	reviews, err := c.capture(ctx, namespace, accounts)
	if err != nil {
		return nil, err
	}
	lanyard, err := b.startLanyard(ctx, c)
	if err != nil {
		return nil, err
	}
	baseline, err := b.startBaseline(ctx, 1)
	if err != nil {
		return nil, err
	}
	var cases []loadCase
	for _, containers := range loadContainers() {
		cases = append(cases, loadCase{"Lanyardall three", containers, lanyard, podPath, reviews[threeClouds][containers]},
			loadCase{"baseline", containers, baseline, "/minimal", reviews[threeClouds][containers]})
	}
	for _, p := range peers() {
		s, err := b.startPeer(ctx, c, &p, reviews[p.account()][2])
		if err != nil {
			return nil, err
		}
		for _, containers := range loadContainers() {
			review := reviews[p.account()][containers]
			cases = append(cases, loadCase{p.name + p.cloud, containers, s, p.path, review},
				loadCase{"Lanyard" + p.cloud, containers, lanyard, podPath, review})
		}
	}
	return cases, nil
}

// startPeer runs a webhook, and returns when it injects.
func (b *bench) startPeer(ctx context.Context, c *cluster, p *peer, review []byte) (*server, error) {
	e, err := b.endpoint(ctx, p.name, p.port)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(e.dir, "kubeconfig")
	// pfnet has no flag for the certificate: it looks here, below the temporary directory.
	certs := filepath.Join(e.dir, "k8s-webhook-server", "serving-certs")
	err = errors.Join(c.Kubeconfig(kubeconfig), os.MkdirAll(filepath.Dir(certs), 0o700), os.Symlink(e.dir, certs))
	if err != nil {
		return nil, err
	}
	values := strings.NewReplacer("KUBECONFIG", kubeconfig, "PORT", e.port, "CERT", e.cert, "KEY", e.key, "DIR", e.dir)
	var args []string
	for _, arg := range p.args {
		args = append(args, values.Replace(arg))
	}
	// No context: the run stops the process.
	cmd := exec.Command(filepath.Join(peersDir, p.name), args...) //nolint:noctx // see above
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "TMPDIR="+e.dir, "AZURE_TENANT_ID=aaaabbbb-0000-cccc-1111-dddd2222eeee")
	return b.serve(ctx, cmd, e, func(ctx context.Context, s *server) error {
		_, injected, err := ask(ctx, s, p.path, review)
		if err == nil && !injected {
			return fmt.Errorf("%s does not inject", p.name)
		}
		return err
	})
}
