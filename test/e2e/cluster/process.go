// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// componentError is the failure of a component or of its task.
type componentError struct {
	component string
	err       error
}

// Error names the component.
func (e *componentError) Error() string { return e.component + ": " + e.err.Error() }

// Unwrap returns the underlying error.
func (e *componentError) Unwrap() error { return e.err }

// startComponent starts a program that runs as long as the cluster, with its
// output in a log file. The cluster's context is cancelled when the program ends.
func (c *cluster) startComponent(name, path string, args ...string) error {
	// A kept directory may hold the log of an earlier cluster.
	if err := os.RemoveAll(c.logFile(name)); err != nil {
		return fmt.Errorf("remove an old log: %w", err)
	}
	// No context: the component ends with the namespaces.
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.Env = environment(c.Kubernetes)
	running, err := process.Start(cmd, c.logFile(name))
	if err != nil {
		return &componentError{name, err}
	}
	go func() {
		<-running.Done()
		err := running.Err()
		if err == nil {
			err = errors.New("exit status 0")
		}
		c.cancel(&componentError{name, fmt.Errorf("ended by itself: %w", err)})
	}()
	return nil
}

// startKubernetes starts one of the cluster's own binaries.
func (c *cluster) startKubernetes(name string, args ...string) error {
	return c.startComponent(name, filepath.Join(c.Kubernetes, name), args...)
}

func (c *cluster) logFile(component string) string {
	return filepath.Join(c.LogDir, component+".log")
}

// logTail returns the end of the log of the failed component.
func (c *cluster) logTail(err error) string {
	component, ok := errors.AsType[*componentError](err)
	if !ok {
		return ""
	}
	return process.Tail(c.logFile(component.component))
}

// waitFor calls try until it returns nil. If ctx ends first, the error belongs to
// the component, unless another component's error ended ctx.
func waitFor(ctx context.Context, component, what string, try func(context.Context) error) error {
	err := process.Poll(ctx, what, try)
	if err == nil {
		return nil
	}
	if other, ok := errors.AsType[*componentError](context.Cause(ctx)); ok {
		return other
	}
	return &componentError{component, err}
}
