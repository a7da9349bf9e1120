// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// runInit is the first process of the process namespace. It starts the part
// that runs the cluster, reaps all orphaned processes such as containerd's
// shims, and ends with the exit code of that part.
func runInit(args []string) (int, error) {
	// The first process of a namespace receives only signals that it handles.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	// The terminal also sends these to the part that runs the cluster.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)

	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	//nolint:gosec // The program runs itself with its own arguments.
	pid, err := syscall.ForkExec(self, append([]string{nameInside}, args...), &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return 0, fmt.Errorf("start the part inside of the namespaces: %w", err)
	}
	go func() {
		for range signals {
			_ = syscall.Kill(pid, syscall.SIGTERM) // the process may have ended
		}
	}()
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait for the part inside of the namespaces: %w", err)
		}
		if ended == pid {
			return exitCode(status), nil
		}
	}
}
