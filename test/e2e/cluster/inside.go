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
	// startTimeout limits the start of the cluster. A start usually takes
	// seconds, but minutes on a machine under full load.
	startTimeout = 5 * time.Minute
	// commandTimeout is the time in which the command must end after a signal.
	commandTimeout = 30 * time.Second
)

// runInside runs the cluster and the command. It does not stop the components:
// they end with the namespaces.
func runInside(args []string) (int, error) {
	p := &plan{}
	if len(args) != 1 {
		return 0, fmt.Errorf("got %d arguments inside of the namespaces, want 1 (the plan)", len(args))
	}
	if err := json.Unmarshal([]byte(args[0]), p); err != nil {
		return 0, fmt.Errorf("read the plan: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	c := newCluster(ctx, p)
	code, err := c.run()
	if err != nil && ctx.Err() != nil {
		// Further errors are only consequences of the signal.
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("%w%s", err, c.logTail(err))
	}
	return code, nil
}

// run starts the cluster and runs the command.
func (c *cluster) run() (int, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	if err := c.start(ctx); err != nil {
		return 0, err
	}
	return c.runCommand()
}

// runCommand runs the command and returns its exit code.
func (c *cluster) runCommand() (int, error) {
	env := append(environment(c.Kubernetes), "KUBECONFIG="+c.kubeconfig("admin"), "CONTAINERD_ADDRESS="+containerdSocket)
	// Look the name up in the command's own PATH.
	path, err := lookPath(c.Command[0], c.Kubernetes)
	if err != nil {
		return 0, fmt.Errorf("find the command: %w", err)
	}
	cmd := exec.CommandContext(c.ctx, path, c.Command[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandTimeout
	err = step(c.Started, "command ended", func() error {
		err := cmd.Run()
		if cmd.ProcessState != nil {
			// The command ran; its exit code is returned below.
			return nil
		}
		return err
	})
	// The command failed because a component ended by itself.
	if component, ok := errors.AsType[*componentError](context.Cause(c.ctx)); ok {
		return 0, component
	}
	if err != nil {
		return 0, fmt.Errorf("run the command: %w", err)
	}
	return exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// lookPath finds a program in dir, or else in PATH.
func lookPath(name, dir string) (string, error) {
	if !strings.Contains(name, "/") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// environment returns this process's environment with dir first in PATH and
// without proxy settings, because no proxy can be reached inside of the
// namespaces.
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

// bind is a bind mount.
type bind struct{ source, target string }

// mounts returns the bind mounts that replace the host's directories with the
// cluster's: those that components use regardless of their configuration, and
// those that pods depend on.
func (p *plan) mounts() []bind {
	return []bind{
		{filepath.Join(p.Dir, "static-pods"), staticPods},
		{filepath.Join(p.Dir, "lib-cni"), "/var/lib/cni"},
		{filepath.Join(p.Dir, "lib-kubelet"), "/var/lib/kubelet"},
		{filepath.Join(p.Dir, "log-containers"), "/var/log/containers"},
		{filepath.Join(p.LogDir, "pods"), "/var/log/pods"},
	}
}

// mountAll separates the mount namespace from the host: mounts inside are not
// visible outside, and the namespace has its own /proc, /run and directories.
func (p *plan) mountAll() error {
	// First make the mounts private, then shared, for the mounts of containers.
	for _, propagation := range []uintptr{syscall.MS_PRIVATE, syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("isolate the mounts: %w", err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for _, mount := range p.mounts() {
		if err := syscall.Mount(mount.source, mount.target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", mount.target, err)
		}
	}
	return shieldKernelSettings(p.Dir)
}

// setUpNetwork adds the node's address and a route for the Service addresses,
// which kube-proxy translates to pod addresses. There is no route to any other
// network.
func setUpNetwork(ctx context.Context) error {
	commands := [][]string{
		{"link", "set", "lo", "up"},
		// A bridge without ports: some kernels have no dummy devices, but all
		// that run containers have bridges.
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
		return fmt.Errorf("enable IP forwarding: %w", err)
	}
	return nil
}
