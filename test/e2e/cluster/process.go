// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// pollInterval is the time between two looks at something that is coming up.
	pollInterval = 50 * time.Millisecond
	// tailBytes is how much of a log's end goes with an error.
	tailBytes = 4096
)

// componentError is the failure of a component, or of what it has to do.
type componentError struct {
	component string
	err       error
}

// Error names the component.
func (e *componentError) Error() string { return e.component + ": " + e.err.Error() }

// Unwrap returns what went wrong.
func (e *componentError) Unwrap() error { return e.err }

// startComponent starts a program that is to run as long as the cluster does,
// with its output in a log. Where it ends, the cluster's context does.
func (c *cluster) startComponent(name, path string, args ...string) error {
	log, err := os.Create(c.logFile(name))
	if err != nil {
		return fmt.Errorf("making a log: %w", err)
	}
	defer log.Close()
	// It is to outlive each context: whatever ends the cluster ends it, too.
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.Env = environment(c.Kubernetes)
	cmd.Stdout, cmd.Stderr = log, log
	// An interrupt at the terminal is for the command alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return &componentError{name, err}
	}
	go func() {
		err := cmd.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		c.cancel(&componentError{name, fmt.Errorf("ended by itself: %w", err)})
	}()
	return nil
}

// startKubernetes starts a program of the cluster's own binaries.
func (c *cluster) startKubernetes(name string, args ...string) error {
	return c.startComponent(name, filepath.Join(c.Kubernetes, name), args...)
}

func (c *cluster) logFile(component string) string {
	return filepath.Join(c.LogDir, component+".log")
}

// logTail returns the end of the log of the component that the error is about.
func (c *cluster) logTail(err error) string {
	component, ok := errors.AsType[*componentError](err)
	if !ok {
		return ""
	}
	content, err := os.ReadFile(c.logFile(component.component))
	if err != nil {
		return ""
	}
	content = bytes.TrimSpace(content[max(0, len(content)-tailBytes):])
	return fmt.Sprintf("\n%s.log ends with:\n%s", component.component, content)
}

// waitFor calls try until it returns nil. Where the context ends first, the
// error is the component's, with the reason and what the last attempt came to,
// unless the reason is another component.
func waitFor(ctx context.Context, component, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		// The attempt that the context's end cut off says nothing new.
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if other, ok := errors.AsType[*componentError](cause); ok {
		return other
	}
	if last == nil {
		return &componentError{component, fmt.Errorf("waiting for %s: %w", what, cause)}
	}
	return &componentError{component, fmt.Errorf("waiting for %s: %w (last attempt: %w)", what, cause, last)}
}
