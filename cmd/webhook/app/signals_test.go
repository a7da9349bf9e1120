// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// The tests of this file send signals to their own process, so none of them
// runs beside another.

// never is a delay that no test lives to see.
const never = 24 * time.Hour

// holdSignals keeps a signal that nothing else takes from ending the tests.
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

// await gives up long before the tests' own time is over.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s never came", what)
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
				t.Fatalf("before the signal: got %v and %v, want ready and going on", err, ctx.Err())
			}
			send(t, first)
			await(t, draining, "draining")
			if err := check(nil); err == nil {
				t.Error("after the first signal: got ready, want not ready")
			}
			if err := ctx.Err(); err != nil {
				t.Errorf("after the first signal: got %v, want it to go on", err)
			}
			send(t, syscall.SIGTERM)
			await(t, ctx.Done(), "the end")
		})
	}
}

func TestAfterTheDelayItStopsByItself(t *testing.T) {
	holdSignals(t)
	const delay = 200 * time.Millisecond
	ctx, draining, stop := signals(t.Context(), delay, logr.Discard())
	defer stop()
	start := time.Now()
	send(t, syscall.SIGTERM)
	await(t, ctx.Done(), "the end")
	if got := time.Since(start); got < delay {
		t.Errorf("stopped after %s, want no less than %s", got, delay)
	}
	await(t, draining, "draining")
}

func TestWithoutASignalItStopsWithItsParent(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	ctx, draining, stop := signals(parent, never, logr.Discard())
	defer stop()
	cancel()
	await(t, ctx.Done(), "the end")
	if err := checkDraining(draining)(nil); err != nil {
		t.Errorf("got %v, want no draining without a signal", err)
	}
}

func TestAParentThatEndsWhileDrainingIsNotWaitedFor(t *testing.T) {
	holdSignals(t)
	parent, cancel := context.WithCancel(t.Context())
	ctx, draining, stop := signals(parent, never, logr.Discard())
	defer stop()
	send(t, syscall.SIGTERM)
	await(t, draining, "draining")
	cancel()
	await(t, ctx.Done(), "the end")
}
