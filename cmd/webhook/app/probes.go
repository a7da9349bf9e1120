// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
)

// healthMux serves the probes: /healthz only reports that the process responds,
// /readyz that it can serve reviews.
func (p *program) healthMux() http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping},
		"/readyz": {
			"shutdown":        checkDraining(p.draining),
			"tls":             checkServing(&p.serving),
			"certificate":     p.certificate.Check,
			"serviceaccounts": checkSynced(p.webhooks.ServiceAccounts.HasSynced),
			"namespaces":      checkSynced(p.webhooks.Namespaces.HasSynced),
		},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	return mux
}

// checkSynced fails until a cache has synced.
func checkSynced(synced func() bool) healthz.Checker {
	return func(*http.Request) error {
		if !synced() {
			return errors.New("cache not synced")
		}
		return nil
	}
}

// checkDraining fails once draining is closed.
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

// checkServing fails until the server accepts connections. Another check verifies its
// certificate.
func checkServing(serving *atomic.Bool) healthz.Checker {
	return func(*http.Request) error {
		if !serving.Load() {
			return errors.New("not serving yet")
		}
		return nil
	}
}

// serveReviews listens at once, so that connections can wait, and accepts them
// as soon as canServe returns true.
func (p *program) serveReviews(ctx context.Context) error {
	start := time.Now()
	return httpserver.ListenAndServe(ctx, p.reviews, func() bool {
		p.serving.Store(p.canServe(time.Since(start)))
		return p.serving.Load()
	})
}

// syncPatience is how long connections wait for the caches to sync. Until they
// are synced, each review needs a live read. If they never sync, because the
// program may not list ServiceAccounts, reviews are served after this time. Their
// errors then name the cause, within the 5 seconds that the webhook configurations
// allow.
const syncPatience = 2 * time.Second

// canServe reports whether to accept connections: whether a certificate is loaded, and the
// caches are synced or syncPatience has passed.
func (p *program) canServe(waited time.Duration) bool {
	return p.certificate.Ready() && (p.synced() || waited >= syncPatience)
}

func (p *program) synced() bool {
	return p.webhooks.ServiceAccounts.HasSynced() && p.webhooks.Namespaces.HasSynced()
}
