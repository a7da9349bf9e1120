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

// plan is what the part of the program outside of the namespaces tells the part
// inside.
type plan struct {
	options
	binaries
	// Started is when the program was.
	Started time.Time
	// Dir is a directory for everything that is written. It goes when the
	// cluster does.
	Dir string
	// Cgroup is the control group of all pods, as in /lanyard-cluster-1.
	Cgroup string
}

// runOutside makes what has to be made outside of the namespaces, runs the
// cluster inside, and removes it all.
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
	// From here on a signal ends the cluster, not the program that removes it.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	p := &plan{options: opts, binaries: found, Started: started}
	defer func() { err = errors.Join(err, step(p.Started, "removed", p.remove)) }()
	if err := p.prepare(); err != nil {
		return 0, err
	}
	return runNamespaces(p, signals)
}

// prepare makes the directories and the control groups.
func (p *plan) prepare() (err error) {
	if p.Dir, err = os.MkdirTemp("", "lanyard-cluster-"); err != nil {
		return fmt.Errorf("making the cluster's directory: %w", err)
	}
	if p.LogDir == "" {
		p.LogDir = filepath.Join(p.Dir, "log")
	}
	// The mount points stay: they are empty, and another cluster may use them.
	dirs := []string{p.LogDir, filepath.Join(p.LogDir, "pods")}
	for _, mount := range p.mounts() {
		dirs = append(dirs, mount.source, mount.target)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making the cluster's directories: %w", err)
		}
	}
	p.Cgroup = "/" + filepath.Base(p.Dir)
	return makeCgroup(p.Cgroup)
}

// remove removes what prepare made, when no process of the cluster is left.
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
// code. When it returns, no process is left in them: the kernel ends what
// remains of a process namespace with its first process, and only then lets
// that one be waited for. The mounts and the network go with the processes.
func runNamespaces(p *plan, signals <-chan os.Signal) (int, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return 0, fmt.Errorf("writing the plan: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	// It ends by a signal, not by a context: see below.
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Args = []string{nameInit, string(text)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		// Nothing outlives this program, even where it is killed.
		Pdeathsig: syscall.SIGKILL,
	}
	// Pdeathsig follows the thread, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("making the namespaces: %w", err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-signals:
				// Whether it arrives does not matter: the process may have ended.
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

// exitCode is the exit code of a process as a shell reports it.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// step runs part of the work and reports how long it took, and how long it has
// been since the start.
func step(start time.Time, title string, work func() error) error {
	began := time.Now()
	if err := work(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "cluster: %s: %.1f s, %.1f s in all\n", title, time.Since(began).Seconds(), time.Since(start).Seconds())
	return nil
}
