// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script  string
		wantErr string
	}{
		"a process that ends at SIGTERM is stopped":     {script: `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done`},
		"the exit code of a failed process is an error": {script: `trap '' TERM; echo ready; exit 3`, wantErr: "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Start(exec.CommandContext(context.Background(), "sh", "-c", test.script), filepath.Join(t.TempDir(), "program.log")) //nolint:usetesting // Stop ends the process
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := Poll(ctx, "the output", func(context.Context) error {
				if Tail(p.LogFile) == "" {
					return errors.New("no output")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			err = p.Stop()
			if got := errorText(err); got != test.wantErr {
				t.Errorf("got error %q, want %q", got, test.wantErr)
			}
			if want := "\nend of program.log:\nready"; !strings.HasPrefix(Tail(p.LogFile), want) {
				t.Errorf("got log %q, want a log that begins with %q", Tail(p.LogFile), want)
			}
		})
	}
}

// The script writes numbers to its log.
func TestASuspendedProcessDoesNothing(t *testing.T) {
	t.Parallel()
	start := func() *Process {
		p, err := Start(exec.CommandContext(context.Background(), "sh", "-c", "while :; do echo x; done"), filepath.Join(t.TempDir(), "program.log")) //nolint:usetesting // Stop ends the process
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	size := func(p *Process) int64 {
		info, err := os.Stat(p.LogFile)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	await := func(p *Process, bytes int64) {
		if err := Poll(t.Context(), "output", func(context.Context) error {
			if got := size(p); got < bytes {
				return fmt.Errorf("got %d bytes of %d", got, bytes)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	suspended, other := start(), start()
	if err := suspended.Suspend(); err != nil {
		t.Fatal(err)
	}
	before := size(suspended)
	await(other, size(other)+1<<10) // in the same time, the other process writes
	if after := size(suspended); after != before {
		t.Errorf("got %d bytes while the process was suspended, want 0", after-before)
	}
	if err := suspended.Resume(); err != nil {
		t.Fatal(err)
	}
	await(suspended, before+1)
	for _, p := range []*Process{suspended, other} {
		if err := p.Stop(); errorText(err) != "signal: terminated" {
			t.Errorf("got %v, want the end by SIGTERM", err)
		}
	}
}

func TestPoll(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	attempts := 0
	err := Poll(ctx, "the node", func(context.Context) error {
		if attempts++; attempts == 3 {
			cancel(errors.New("too late"))
		}
		return errors.New("not ready")
	})
	if got, want := errorText(err), "wait for the node: too late (last attempt: not ready)"; got != want {
		t.Errorf("got error %q, want %q", got, want)
	}
	if err := Poll(t.Context(), "nothing", func(context.Context) error { return nil }); err != nil {
		t.Errorf("got error %v, want none", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
