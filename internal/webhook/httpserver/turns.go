// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

const (
	// turnTimeout limits a turn in which the client does not read the response, and
	// waitTimeout the wait for a turn.
	turnTimeout, waitTimeout = 2 * time.Second, 5 * time.Second
)

var errNoTurn = errors.New("too many other requests")

// InTurns passes at most n requests at a time to next, because any pod can send some. The
// address with the fewest is next, so a client that sends many, or does not read, does not
// keep Prometheus from its own.
func InTurns(n int64, next http.Handler) http.Handler {
	turns := bounds.NewPool(n, 0, errNoTurn) // as many wait as have a connection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := turns.Claim(bounds.AddressOf(r.RemoteAddr))
		defer turn.Keep(0)
		ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
		defer cancel()
		if err := turn.Take(ctx, 1); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(turnTimeout))
		next.ServeHTTP(w, r)
	})
}
