// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// signals gives a context that ends delay after the first SIGTERM or SIGINT,
// and at once at the second. In between, draining is closed and checkDraining
// fails: the cluster takes the replica out of its Service while it still
// answers.
func signals(parent context.Context, delay time.Duration, log logr.Logger) (ctx context.Context, draining <-chan struct{}, stop context.CancelFunc) {
	begun := make(chan struct{})
	ctx, stop = context.WithCancel(parent)
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer stop()
		defer signal.Stop(received)
		select {
		case <-ctx.Done():
			return
		case s := <-received:
			log.Info("Draining", "signal", s.String(), "shutdownDelay", delay)
			close(begun)
		}
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-received:
			log.Info("Stopping at the second signal")
		case <-ctx.Done():
		}
	}()
	return ctx, begun, stop
}

// checkDraining is a health check that fails once draining is closed.
func checkDraining(draining <-chan struct{}) healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-draining:
			return errors.New("shutting down")
		default:
			return nil
		}
	}
}
