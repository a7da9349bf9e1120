// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs programs with a log file for tests, and waits until
// they serve.
package process

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
	// stopTimeout is how long a process may take to end after SIGTERM. Only one that hangs
	// takes as long.
	stopTimeout = 5 * time.Minute
	// tailBytes limits the part of a log that Tail returns.
	tailBytes = 4096
	// pollInterval is the time between two attempts of Poll and Until.
	pollInterval = 50 * time.Millisecond
)

// Process is a program that was started with Start.
type Process struct {
	// LogFile holds the standard output and the standard error.
	LogFile string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts cmd and appends its output to logFile. The output goes to a file
// and not through a pipe, so that children that outlive the process do not
// delay Done. A terminal's Ctrl-C does not reach the process; the caller must
// stop it.
func Start(cmd *exec.Cmd, logFile string) (*Process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the log of %s: %w", filepath.Base(cmd.Path), err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	p := &Process{LogFile: logFile, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the error of a process that has ended, or nil if it succeeded. It
// must only be called after Done is closed.
func (p *Process) Err() error { return p.err }

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Suspend stops the process until Resume. It waits until no thread runs, because on a busy
// machine, threads continue for some time after the signal.
func (p *Process) Suspend() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("suspend %s: %w", filepath.Base(p.cmd.Path), err)
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.PID(), &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("suspend %s: %w", filepath.Base(p.cmd.Path), err)
		case !status.Stopped():
			return fmt.Errorf("suspend %s: got the wait status %#x, want a stopped process", filepath.Base(p.cmd.Path), status)
		default:
			return nil
		}
	}
}

// Resume continues a process that is suspended.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Stop sends SIGTERM, waits for the process and returns its error. After five
// minutes it kills the process.
func (p *Process) Stop() error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	name := filepath.Base(p.cmd.Path)
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s is still running %v after SIGTERM", name, stopTimeout), p.cmd.Process.Kill())
	}
}

// Tail returns the end of a log for an error message, with a heading. It returns
// an empty string if the file is empty or cannot be read, because the message is
// about another error.
func Tail(logFile string) string {
	content, err := os.ReadFile(logFile)
	if err != nil || len(content) == 0 {
		return ""
	}
	content = bytes.TrimSpace(content[max(0, len(content)-tailBytes):])
	return fmt.Sprintf("\nend of %s:\n%s", filepath.Base(logFile), content)
}

// Until calls done until it reports true or fails, or until the time is over.
func Until(ctx context.Context, what string, timeout time.Duration, done wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, done); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// Poll calls try until it returns nil. If ctx ends first, the error contains the
// cause and the error of the last complete attempt.
func Poll(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		// An attempt that was interrupted by the end of ctx has no useful error.
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return nil
	}
	if last == nil {
		return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
	}
	return fmt.Errorf("wait for %s: %w (last attempt: %w)", what, context.Cause(ctx), last)
}

// WriteScript writes a program that the test runs. While the file is open for writing, no
// other goroutine starts a process: it would inherit the descriptor, and running the file
// would fail with "text file busy" (https://go.dev/issue/22315).
func WriteScript(file, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(file, []byte(text), 0o700)
}
