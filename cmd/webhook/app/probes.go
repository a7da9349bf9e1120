// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
)

// healthMux serves the probes: /healthz only reports that the process responds,
// /readyz that it can serve reviews.
func (p *program) healthMux(address string, own []tls.Certificate) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping},
		"/readyz": {
			"shutdown":        checkDraining(p.draining),
			"tls":             onceServing(&p.serving, recent(checkTLS(address, own))),
			"certificate":     p.certificate.Check,
			"serviceaccounts": checkSynced(p.serviceAccounts),
			"namespaces":      checkSynced(p.namespaces),
		},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	return mux
}

// checkSynced fails until the cache has synced.
func checkSynced(c *metadatacache.Cache) healthz.Checker {
	return func(*http.Request) error {
		if !c.HasSynced() {
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

// onceServing fails until serving is set, because a connection made earlier would only wait.
func onceServing(serving *atomic.Bool, check healthz.Checker) healthz.Checker {
	return func(r *http.Request) error {
		if !serving.Load() {
			return errors.New("not serving yet")
		}
		return check(r)
	}
}

// verdictAge is the maximum age of the result of an expensive check.
const verdictAge = time.Second

// recently returns a function that calls get at most once per age and otherwise returns the
// last result, because any client that reaches the port can trigger it.
func recently[A, T any](age time.Duration, get func(A) T) func(A) T {
	var mu sync.Mutex
	var last time.Time
	var result T
	return func(argument A) T {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) >= age {
			result = get(argument)
			last = time.Now()
		}
		return result
	}
}

// recent returns a check that calls check at most once per verdictAge.
func recent(check healthz.Checker) healthz.Checker {
	return recently(verdictAge, func(r *http.Request) error {
		// Later clients share the result, so a client that disconnects must not cancel the check.
		return check(r.WithContext(context.WithoutCancel(r.Context())))
	})
}

// checkTLS makes a TLS handshake with the server at address. own is the client certificate to
// present if the server asks for one.
func checkTLS(address string, own []tls.Certificate) healthz.Checker {
	// Another check verifies the server's certificate.
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: own}} //nolint:gosec // see above
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("connect to the server: %w", err)
		}
		return conn.Close()
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
	return p.serviceAccounts.HasSynced() && p.namespaces.HasSynced()
}
