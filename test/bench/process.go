// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// The programs that make bench builds.
const (
	lanyardBinary = "bin/lanyard-webhook"
	floorBinary   = "bin/floor"
)

// server is a process that serves admission requests.
type server struct {
	url string
	ca  []byte
	pid int
	// metrics is the URL of Lanyard's metrics.
	metrics string
}

// startLanyard runs the webhook and returns when it is ready, with the time
// until then. The run stops it, unless the caller does so earlier with end.
func (b *bench) startLanyard(ctx context.Context, kubeconfig string) (s *server, ready time.Duration, end func() error, err error) {
	dir, err := b.subdir(fmt.Sprintf("lanyard-%d", len(b.ends)))
	if err != nil {
		return nil, 0, nil, err
	}
	start := time.Now()
	process, err := webhook.Start(ctx, webhook.Options{
		Binary: lanyardBinary, Kubeconfig: kubeconfig, Dir: dir,
		Args: []string{"--azure-default-tenant-id=aaaabbbb-0000-cccc-1111-dddd2222eeee"},
	})
	if err != nil {
		return nil, 0, nil, err
	}
	ready = time.Since(start)
	b.ends = append(b.ends, process.Stop)
	return &server{url: process.URL, ca: process.CA, pid: process.PID(), metrics: process.MetricsURL}, ready, process.Stop, nil
}

// startFloor runs the floor server with the patch and with constant responses
// of the given lengths.
func (b *bench) startFloor(patch []byte, lengths ...int) (*server, error) {
	dir, err := b.subdir(fmt.Sprintf("floor-%d", len(b.ends)))
	if err != nil {
		return nil, err
	}
	cert, key, ca, err := controlplane.NewServingCertificate(dir, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	var list []string
	for _, length := range lengths {
		list = append(list, strconv.Itoa(length))
	}
	args := []string{"-tls-cert-file", cert, "-tls-private-key-file", key, "-lengths", strings.Join(list, ",")}
	if patch != nil {
		file := filepath.Join(dir, "patch.json")
		if err := os.WriteFile(file, patch, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "-patch-file", file)
	}
	s, err := b.runFloor(args)
	if err != nil {
		return nil, err
	}
	s.ca = ca
	return s, nil
}

func (b *bench) runFloor(args []string) (*server, error) {
	// No context: the process ends with its standard input.
	cmd := exec.Command(floorBinary, args...) //nolint:noctx // see above
	cmd.Stderr = os.Stderr
	// A terminal's Ctrl-C must reach only this process, which then stops the
	// floor.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; run make bench, in the root of the repository", err)
	}
	b.ends = append(b.ends, func() error { return errors.Join(input.Close(), cmd.Wait()) })
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("floor: %w", err)
	}
	return &server{url: "https://" + strings.TrimSpace(address), pid: cmd.Process.Pid}, nil
}

// memoryUse is a process's memory in KiB, with the fields of
// proc_pid_status(5).
type memoryUse struct {
	RSS  int // VmRSS: all resident memory
	Anon int // RssAnon: the part that is not backed by files
	File int // RssFile: the part that is backed by files such as the program itself
	Peak int // VmHWM: the maximum of VmRSS
}

func readMemory(pid int) (memoryUse, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memoryUse{}, err
	}
	var m memoryUse
	fields := map[string]*int{"VmRSS:": &m.RSS, "RssAnon:": &m.Anon, "RssFile:": &m.File, "VmHWM:": &m.Peak}
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
