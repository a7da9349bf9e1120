// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"time"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
)

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

// canServe reports whether to accept connections: a certificate is loaded, and
// the caches are synced or syncPatience has passed.
func (p *program) canServe(waited time.Duration) bool {
	return p.certificate.Ready() && (p.synced() || waited >= syncPatience)
}

func (p *program) synced() bool {
	return p.serviceAccounts.HasSynced() && p.namespaces.HasSynced()
}
