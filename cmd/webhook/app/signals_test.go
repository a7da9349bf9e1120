// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// The tests of this file send signals to their own process. None of them is
// parallel.

// never is a delay that is longer than any test.
const never = 24 * time.Hour

// holdSignals keeps unhandled signals from ending the process.
func holdSignals(t *testing.T) {
	t.Helper()
	held := make(chan os.Signal, 8)
	signal.Notify(held, syscall.SIGTERM, syscall.SIGINT)
	t.Cleanup(func() { signal.Stop(held) })
}

func send(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}

// await fails the test after a minute.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("got no %s in a minute", what)
	}
}

func TestTheFirstSignalDrainsAndTheSecondStops(t *testing.T) {
	holdSignals(t)
	for name, first := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			ctx, draining, stop := signals(t.Context(), never, logr.Discard())
			defer stop()
			check := checkDraining(draining)
			if err := check(nil); err != nil || ctx.Err() != nil {
				t.Fatalf("before the signal: got %v and %v, want ready and running", err, ctx.Err())
			}
			send(t, first)
			await(t, draining, "draining")
			if err := check(nil); err == nil {
				t.Error("after the first signal: got ready, want not ready")
			}
			if err := ctx.Err(); err != nil {
				t.Errorf("after the first signal: got %v, want it to run on", err)
			}
			send(t, syscall.SIGTERM)
			await(t, ctx.Done(), "the end")
		})
	}
}

func TestItStopsAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		received, draining := make(chan os.Signal), make(chan struct{})
		ended := make(chan struct{})
		go func() {
			drain(t.Context(), received, draining, 10*time.Second, logr.Discard())
			close(ended)
		}()
		received <- syscall.SIGTERM
		start := time.Now()
		<-draining
		<-ended
		if got := time.Since(start); got != 10*time.Second {
			t.Errorf("stopped after %s, want 10s", got)
		}
	})
}

func TestItStopsWithItsParent(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	ctx, draining, stop := signals(parent, never, logr.Discard())
	defer stop()
	cancel()
	await(t, ctx.Done(), "the end")
	if err := checkDraining(draining)(nil); err != nil {
		t.Errorf("got %v, want no draining without a signal", err)
	}
}

func TestItStopsWithItsParentWhileDraining(t *testing.T) {
	holdSignals(t)
	parent, cancel := context.WithCancel(t.Context())
	ctx, draining, stop := signals(parent, never, logr.Discard())
	defer stop()
	send(t, syscall.SIGTERM)
	await(t, draining, "draining")
	cancel()
	await(t, ctx.Done(), "the end")
}
