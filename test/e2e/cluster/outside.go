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
	"runtime"
	"syscall"
	"time"
)

// plan is passed from the part outside of the namespaces to the part inside.
type plan struct {
	options
	binaries
	// Started is the start time of the program.
	Started time.Time
	// Dir is a directory for all files that are written. It is removed with the
	// cluster.
	Dir string
	// Cgroup is the control group of all pods, such as /lanyard-cluster-1.
	Cgroup string
}

// runOutside creates everything that the cluster needs outside of the
// namespaces, runs the cluster inside, and removes everything again.
func runOutside(args []string) (code int, err error) {
	started := time.Now()
	opts, err := parseOptions(args, os.Stderr)
	if err != nil {
		return 0, err
	}
	if err := checkMachine(); err != nil {
		return 0, err
	}
	found, err := findBinaries()
	if err != nil {
		return 0, err
	}
	// From now on, signals end the cluster, so that this process can remove it.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	p := &plan{options: opts, binaries: found, Started: started}
	defer func() { err = errors.Join(err, step(p.Started, "removed", p.remove)) }()
	if err := p.prepare(); err != nil {
		return 0, err
	}
	return runNamespaces(p, signals)
}

// prepare creates the directories and the control groups.
func (p *plan) prepare() (err error) {
	if p.Dir, err = os.MkdirTemp("", "lanyard-cluster-"); err != nil {
		return fmt.Errorf("create the cluster's directory: %w", err)
	}
	if p.LogDir == "" {
		p.LogDir = filepath.Join(p.Dir, "log")
	}
	// The mount points are empty and not removed, because another cluster may
	// use them.
	dirs := []string{p.LogDir, filepath.Join(p.LogDir, "pods")}
	for _, mount := range p.mounts() {
		dirs = append(dirs, mount.source, mount.target)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create the cluster's directories: %w", err)
		}
	}
	p.Cgroup = "/" + filepath.Base(p.Dir)
	return makeCgroup(p.Cgroup)
}

// remove removes everything that prepare created. No process of the cluster may
// be running.
func (p *plan) remove() error {
	var errs []error
	if p.Cgroup != "" {
		errs = append(errs, removeCgroup(p.Cgroup))
	}
	if p.Dir != "" {
		errs = append(errs, os.RemoveAll(p.Dir))
	}
	return errors.Join(errs...)
}

// runNamespaces runs the first process of new namespaces and returns its exit
// code. When it returns, all processes in the namespaces have ended: the kernel
// kills them together with the first process before Wait returns. The mounts
// and the network are removed with the processes.
func runNamespaces(p *plan, signals <-chan os.Signal) (int, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return 0, fmt.Errorf("encode the plan: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	// The process ends by a signal, not by a context: see below.
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Args = []string{nameInit, string(text)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		// The kernel kills the process if this program is killed.
		Pdeathsig: syscall.SIGKILL,
	}
	// Pdeathsig follows the thread, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("create the namespaces: %w", err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-signals:
				// Ignore the error: the process may have ended.
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
		}
	}()
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitCode(exit.Sys().(syscall.WaitStatus)), nil
	}
	return 0, err
}

// exitCode returns the exit code of a process as a shell reports it.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// step runs one step and prints its duration and the time since the start.
func step(start time.Time, title string, work func() error) error {
	began := time.Now()
	if err := work(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "cluster: %s: %.1f s, %.1f s total\n", title, time.Since(began).Seconds(), time.Since(start).Seconds())
	return nil
}
