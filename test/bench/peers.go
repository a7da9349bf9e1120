// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// peer is another webhook, and the ServiceAccount whose pods it injects. Lanyard gets the
// same requests, and injects the same cloud.
type peer struct {
	name, cloud string
	repository  string            // of its sources
	own         map[string]string // its annotations
	lanyard     string            // the prefix of Lanyard's annotations for the cloud
	path        string
	port        string // if it is fixed
	args        []string
	program     string // the path of the program
	version     string
}

func (p *peer) account() string { return "app-of-" + p.name }

// knownPeers returns the three webhooks, without programs. In the arguments, CERT, KEY, DIR,
// KUBECONFIG and PORT are placeholders.
func knownPeers() []peer {
	identity := identity(0)
	return []peer{
		{
			name: "eks", cloud: "AWS", repository: "github.com/aws/amazon-eks-pod-identity-webhook",
			lanyard: "lanyard.dev/aws-", path: "/mutate",
			own:  map[string]string{"eks.amazonaws.com/role-arn": identity["lanyard.dev/aws-role-arn"]},
			args: []string{"--in-cluster=false", "--kubeconfig=KUBECONFIG", "--port=PORT", "--metrics-port=0", "--tls-cert=CERT", "--tls-key=KEY"},
		}, {
			name: "azure", cloud: "Azure", repository: "github.com/Azure/azure-workload-identity",
			lanyard: "lanyard.dev/azure-", path: "/mutate-v1-pod", port: fixedPort,
			own:  map[string]string{"azure.workload.identity/client-id": identity["lanyard.dev/azure-client-id"]},
			args: []string{"--disable-cert-rotation", "--webhook-cert-dir=DIR", "--health-addr=0", "--metrics-addr=0"},
		}, {
			name: "pfnet", cloud: "Google", repository: "github.com/pfnet-research/gcp-workload-identity-federation-webhook",
			lanyard: "lanyard.dev/gcp-", path: "/mutate-v1-pod", port: fixedPort,
			own: map[string]string{
				"cloud.google.com/workload-identity-provider": identity["lanyard.dev/gcp-workload-identity-provider"],
				"cloud.google.com/service-account-email":      identity["lanyard.dev/gcp-service-account"],
			},
			args: []string{"-health-probe-bind-address=0", "-metrics-bind-address=0"},
		},
	}
}

// fixedPort is the port of controller-runtime's webhooks, for which two of the programs have
// no flag. So only one peer runs at a time.
const fixedPort = "9443"

// findPeers returns the webhooks, with the programs eks, azure and pfnet in a directory.
func findPeers(dir string) ([]peer, error) {
	if dir == "" {
		return nil, errors.New("got no programs to compare with, want -peers=DIR with the programs eks, azure and pfnet; test/bench/README.md says where they come from")
	}
	all := knownPeers()
	for i := range all {
		p := &all[i]
		p.program = filepath.Join(dir, p.name)
		if _, err := exec.LookPath(p.program); err != nil {
			return nil, fmt.Errorf("find the program %s: %w; build it from %s", p.name, err, p.repository)
		}
		var err error
		if p.version, err = peerVersion(p.program); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// peerVersion returns the content of the file PROGRAM.version, or else the version in the
// program's build information.
func peerVersion(program string) (string, error) {
	given, err := os.ReadFile(program + ".version")
	if err == nil {
		return strings.TrimSpace(string(given)), nil
	}
	if !os.IsNotExist(err) {
		return "", err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "", fmt.Errorf("%s: got no version in the program, want it in the file %s.version", program, program)
	}
	return info.Main.Version, nil
}

// peers measures the CPU of Lanyard and of three other webhooks for the same requests.
func (b *bench) peers(ctx context.Context) (*outcome, error) {
	all, err := findPeers(b.peersDir)
	if err != nil {
		return nil, err
	}
	for i := range all {
		b.printf("%s %s: %s", all[i].name, all[i].version, all[i].program)
	}
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	reviews, err := capturePeers(ctx, c, all)
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
	result := b.outcome(c, "HTTP/1.1, 8 connections")
	t := peersTable{table: result.table("peers", "Webhook", "version", "injects", "CPU per request, 2 containers, ms", "20 containers, ms"),
		plot: plot{Name: "peers", Title: "CPU for one pod, in milliseconds", Groups: []group{{Name: "2 containers"}, {Name: "20 containers"}}}}
	for i := range all {
		if err := b.comparePeer(ctx, c, &all[i], lanyard, reviews, &t); err != nil {
			return nil, err
		}
	}
	err = b.compare(ctx, reviews[threeClouds], &t, contender{"Lanyard", "", "all three", lanyard, podPath}, contender{"baseline", "", "", baseline, "/minimal"})
	if err != nil {
		return nil, err
	}
	result.Plots = []plot{t.plot}
	return result, nil
}

// capturePeers creates the ServiceAccounts, and returns the requests for pods of each.
func capturePeers(ctx context.Context, c *cluster, all []peer) (map[string]map[int][]byte, error) {
	const namespace = "team"
	if err := c.createNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	accounts := []string{threeClouds}
	for _, p := range all {
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
	return c.capture(ctx, namespace, accounts)
}

// comparePeer runs a webhook, and measures it and Lanyard in turns.
func (b *bench) comparePeer(ctx context.Context, c *cluster, p *peer, lanyard *server, reviews map[string]map[int][]byte, t *peersTable) (err error) {
	before := len(b.ends)
	defer func() { err = errors.Join(err, b.end(before)) }()
	of := reviews[p.account()]
	s, err := b.startPeer(ctx, c, p, of[loadContainers()[0]])
	if err != nil {
		return err
	}
	return b.compare(ctx, of, t, contender{p.name, p.version, p.cloud, s, p.path}, contender{"Lanyard", "", p.cloud, lanyard, podPath})
}

// contender is a server that is measured with others in turns.
type contender struct {
	name, version, clouds string
	server                *server
	path                  string
}

// peersTable is the result, as a table and as a plot.
type peersTable struct {
	table *table
	plot  plot
}

// compare measures all servers with the same requests, and adds a row for each.
func (b *bench) compare(ctx context.Context, reviews map[int][]byte, t *peersTable, all ...contender) error {
	var cases []loadCase
	for _, containers := range loadContainers() {
		for _, c := range all {
			cases = append(cases, loadCase{c.name, containers, c.server, c.path, reviews[containers]})
		}
	}
	trials, err := b.rounds(ctx, cases, either(b, 16, 3))
	if err != nil {
		return err
	}
	for _, c := range all {
		cells := []any{c.name, c.version, c.clouds}
		for i, containers := range loadContainers() {
			cpu := medianOf(trials[loadKey{c.name, containers}], func(t trial) float64 { return t.CPU / 1000 })
			cells = append(cells, cpu)
			bars := &t.plot.Groups[i].Bars
			*bars = append(*bars, bar{strings.TrimSuffix(c.name+", "+c.clouds, ", "), cpu})
		}
		t.table.add(cells...)
	}
	return nil
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
	cmd := exec.Command(p.program, args...) //nolint:noctx // see above
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "TMPDIR="+e.dir, "AZURE_TENANT_ID=aaaabbbb-0000-cccc-1111-dddd2222eeee")
	return b.serve(ctx, cmd, e, func(ctx context.Context, s *server) error {
		_, injected, err := ask(ctx, s, p.path, review)
		if err == nil && !injected {
			return fmt.Errorf("%s does not inject", p.name)
		}
		return err
	})
}
