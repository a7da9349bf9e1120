// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// startTimeout bounds the start of the cluster. It takes seconds; this is
	// for a machine whose cores are all busy.
	startTimeout = 5 * time.Minute
	// commandTimeout is how long the command has between a signal and its end.
	commandTimeout = 30 * time.Second
)

// runInside runs the cluster and the command. It stops nothing: all that it
// started ends with the namespaces.
func runInside(args []string) (int, error) {
	p := &plan{}
	if len(args) != 1 {
		return 0, fmt.Errorf("got %d arguments inside of the namespaces, want the plan", len(args))
	}
	if err := json.Unmarshal([]byte(args[0]), p); err != nil {
		return 0, fmt.Errorf("reading the plan: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	c := newCluster(ctx, p)
	code, err := c.run()
	if err != nil && ctx.Err() != nil {
		// The rest of the error is about what the signal cut short.
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("%w%s", err, c.logTail(err))
	}
	return code, nil
}

// run starts the cluster and runs the command against it.
func (c *cluster) run() (int, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	if err := c.start(ctx); err != nil {
		return 0, err
	}
	return c.runCommand()
}

// runCommand runs the command to its end and returns its exit code.
func (c *cluster) runCommand() (int, error) {
	env := append(environment(c.Kubernetes), "KUBECONFIG="+c.kubeconfig("admin"), "CONTAINERD_ADDRESS="+containerdSocket)
	// The name is looked up where the command itself would look.
	path, err := lookPath(c.Command[0], c.Kubernetes)
	if err != nil {
		return 0, fmt.Errorf("finding the command: %w", err)
	}
	cmd := exec.CommandContext(c.ctx, path, c.Command[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandTimeout
	err = step(c.Started, "command ended", func() error {
		err := cmd.Run()
		if cmd.ProcessState != nil {
			// It ran, and how it ended is its own affair.
			return nil
		}
		return err
	})
	// A component that ended by itself took the command with it.
	if component, ok := errors.AsType[*componentError](context.Cause(c.ctx)); ok {
		return 0, component
	}
	if err != nil {
		return 0, fmt.Errorf("running the command: %w", err)
	}
	return exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// lookPath finds a program in dir or else in PATH.
func lookPath(name, dir string) (string, error) {
	if !strings.Contains(name, "/") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// environment is this program's with dir first in PATH and without a proxy,
// which nothing in here could reach.
func environment(dir string) []string {
	env := []string{"PATH=" + dir + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name != "PATH" && !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			env = append(env, variable)
		}
	}
	return env
}

// bind is a directory that is mounted over another one.
type bind struct{ source, target string }

// mounts are the directories that components insist on, whatever they are told,
// or that pods count on, and that are the cluster's own instead of the machine's.
func (p *plan) mounts() []bind {
	return []bind{
		{filepath.Join(p.Dir, "static-pods"), staticPods},
		{filepath.Join(p.Dir, "lib-cni"), "/var/lib/cni"},
		{filepath.Join(p.Dir, "lib-kubelet"), "/var/lib/kubelet"},
		{filepath.Join(p.Dir, "log-containers"), "/var/log/containers"},
		{filepath.Join(p.LogDir, "pods"), "/var/log/pods"},
	}
}

// mountAll makes the mount namespace the cluster's own: no mount in here is
// seen outside, and it has the processes, /run and directories of its own.
func (p *plan) mountAll() error {
	// First cut off from outside, then shared, for the mounts of containers.
	for _, propagation := range []uintptr{syscall.MS_PRIVATE, syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("cutting off the mounts: %w", err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	for _, mount := range p.mounts() {
		if err := syscall.Mount(mount.source, mount.target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting over %s: %w", mount.target, err)
		}
	}
	return shieldKernelSettings(p.Dir)
}

// setUpNetwork gives the network namespace the node's address and a route to
// the addresses of Services, which kube-proxy turns into those of pods. There
// is no route to anywhere else.
func setUpNetwork(ctx context.Context) error {
	commands := [][]string{
		{"link", "set", "lo", "up"},
		// A bridge without ports: not each kernel has dummy devices, and none
		// that runs containers lacks bridges.
		{"link", "add", "node0", "type", "bridge"},
		{"addr", "add", nodeIP + networkBits, "dev", "node0"},
		{"link", "set", "node0", "up"},
	}
	for _, args := range commands {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("forwarding the pods' packets: %w", err)
	}
	return nil
}
