// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// signals returns a context that is canceled delay after the first SIGTERM or SIGINT, or
// immediately on the second signal. The first signal closes draining: the readiness probe
// then fails, and the cluster removes the replica from its Service while it still serves.
func signals(parent context.Context, delay time.Duration, log logr.Logger) (ctx context.Context, draining <-chan struct{}, stop context.CancelFunc) {
	begun := make(chan struct{})
	ctx, stop = context.WithCancel(parent)
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer stop()
		defer signal.Stop(received)
		drain(ctx, received, begun, delay, log)
	}()
	return ctx, begun, stop
}

// drain closes begun on the first signal. It returns after delay, on the second signal, or
// when ctx is done.
func drain(ctx context.Context, received <-chan os.Signal, begun chan<- struct{}, delay time.Duration, log logr.Logger) {
	select {
	case <-ctx.Done():
		return
	case s := <-received:
		log.Info("Received a signal, draining", "signal", s.String(), "shutdownDelay", delay)
		close(begun)
	}
	select {
	case <-time.After(delay):
	case <-received:
		log.Info("Received a second signal, stopping")
	case <-ctx.Done():
	}
}
