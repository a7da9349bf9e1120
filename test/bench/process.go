// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// The programs that make bench builds.
const (
	lanyardBinary  = "bin/lanyard-webhook"
	baselineBinary = "bin/baseline"
)

// startTimeout limits the start of a program.
const startTimeout = time.Minute

// server is a process that serves admission requests.
type server struct {
	url string
	ca  []byte
	pid int
	// metrics is the URL of Lanyard's metrics, ready the time until Lanyard was ready.
	metrics string
	ready   time.Duration
}

// startBoth starts a control plane as startCluster does, and Lanyard for it.
func (b *bench) startBoth(ctx context.Context, assets ...string) (*cluster, *server, error) {
	c, err := b.startCluster(ctx, assets...)
	if err != nil {
		return nil, nil, err
	}
	lanyard, err := b.startLanyard(ctx, c)
	return c, lanyard, err
}

// startLanyard runs the webhook and returns when it is ready. The run stops it.
func (b *bench) startLanyard(ctx context.Context, c *cluster) (*server, error) {
	dir, err := b.subdir("lanyard")
	if err != nil {
		return nil, err
	}
	start := time.Now()
	process, err := webhook.Start(ctx, webhook.Options{
		Binary: lanyardBinary, Kubeconfig: c.kubeconfig, Dir: dir,
		Args: []string{"--azure-default-tenant-id=aaaabbbb-0000-cccc-1111-dddd2222eeee"},
	})
	if err != nil {
		return nil, err
	}
	b.ends = append(b.ends, process.Stop)
	return &server{process.URL, process.CA, process.PID(), process.MetricsURL, time.Since(start)}, nil
}

// endpoint is a port of 127.0.0.1, with a serving certificate and a directory for it.
type endpoint struct {
	port, dir, cert, key string
	ca                   []byte
}

// endpoint creates the certificate of a server with this name. If port is empty, it
// chooses a free one.
func (b *bench) endpoint(ctx context.Context, name, port string) (*endpoint, error) {
	dir, err := b.subdir(name)
	if err != nil {
		return nil, err
	}
	ports, err := webhook.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	cert, key, ca, err := controlplane.NewServingCertificate(dir, "127.0.0.1")
	return &endpoint{cmp.Or(port, ports[0]), dir, cert, key, ca}, err
}

// serve runs a program that serves at the endpoint, and returns when ready returns nil. The
// run stops the program.
func (b *bench) serve(ctx context.Context, cmd *exec.Cmd, e *endpoint, ready func(context.Context, *server) error) (*server, error) {
	running, err := process.Start(cmd, filepath.Join(e.dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("%w; run make bench", err)
	}
	b.ends = append(b.ends, running.Stop)
	s := &server{url: "https://127.0.0.1:" + e.port, ca: e.ca, pid: running.PID()}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = process.Poll(ctx, cmd.Path, func(ctx context.Context) error { return ready(ctx, s) })
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, process.Tail(running.LogFile))
	}
	return s, nil
}

// startBaseline runs the baseline with constant responses of the given lengths.
func (b *bench) startBaseline(ctx context.Context, lengths ...int) (*server, error) {
	e, err := b.endpoint(ctx, "baseline", "")
	if err != nil {
		return nil, err
	}
	var list []string
	for _, length := range lengths {
		list = append(list, strconv.Itoa(length))
	}
	// No context: the run stops the process.
	cmd := exec.Command(baselineBinary, "-address", "127.0.0.1:"+e.port, //nolint:noctx // see above
		"-tls-cert-file", e.cert, "-tls-private-key-file", e.key, "-lengths", strings.Join(list, ","))
	return b.serve(ctx, cmd, e, func(ctx context.Context, s *server) error {
		client := s.client()
		defer client.CloseIdleConnections()
		_, err := post(ctx, client, s.url+"/minimal", []byte("{}"), io.Discard)
		return err
	})
}

// memoryUse is a process's memory in KiB, with the fields of
// proc_pid_status(5).
type memoryUse struct {
	RSS  int // VmRSS: all resident memory
	Anon int // RssAnon: the part that is not backed by files
	Peak int // VmHWM: the maximum of VmRSS
}

func readMemory(pid int) (memoryUse, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memoryUse{}, err
	}
	var m memoryUse
	fields := map[string]*int{"VmRSS:": &m.RSS, "RssAnon:": &m.Anon, "VmHWM:": &m.Peak}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 3 || fields[words[0]] == nil {
			continue
		}
		if *fields[words[0]], err = strconv.Atoi(words[1]); err != nil {
			return m, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
	}
	if m.RSS == 0 {
		return m, fmt.Errorf("read the memory of process %d: VmRSS not found", pid)
	}
	return m, nil
}
