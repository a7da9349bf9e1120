// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// ForgedWrite sends reviews that pretend that the target's ServiceAccount is being
// created.
func ForgedWrite() Load {
	paths := []string{mutateServiceAccountPath, validateServiceAccountPath}
	return Load{"a forged write of a ServiceAccount", func(ctx context.Context, target *Target, tally *Tally) {
		body := target.serviceAccountReview(target.ServiceAccount, `"lanyard.dev/audience":"x"`)
		post(ctx, target, tally, 1, len(paths), func(i int) request { return request{path: paths[i], body: body} })
	}}
}

// UnknownServiceAccount sends one review of a pod whose ServiceAccount has this
// name.
func UnknownServiceAccount(name string) Load {
	return reviews("a pod of an unknown ServiceAccount", 1, 1, func(t *Target) []byte {
		return (&Target{Namespace: t.Namespace, ServiceAccount: name}).podReview(1)
	})
}

// Ordinary returns a function that sends the review of an ordinary pod over one
// connection, as an API server does. It returns an error unless the status is 200.
func (t *Target) Ordinary() func(ctx context.Context) error {
	client := t.client(1)
	return func(ctx context.Context) error {
		var tally Tally
		postOne(ctx, client, t, &tally, request{path: podPath, body: t.podReview(2)})
		if tally.Responses(http.StatusOK) != 1 {
			return fmt.Errorf("got %v, want one response 200", &tally)
		}
		return nil
	}
}

// ConnectionFlood opens connections to the port of the probes, as fast as this many
// workers can, and sends nothing.
func ConnectionFlood(workers int) Load {
	// Each worker keeps this many open, and the webhook soon closes the oldest.
	const open = 16
	return Load{"a flood of empty connections to the port of the probes", func(ctx context.Context, target *Target, tally *Tally) {
		dial := target.plain(target.Health)
		var flood sync.WaitGroup
		for range workers {
			flood.Go(func() {
				var conns [open]net.Conn
				for i := 0; ctx.Err() == nil; i++ {
					slot := &conns[i%open]
					closeAtOnce(*slot)
					var err error
					if *slot, err = dial(ctx); err == nil {
						tally.add("connections opened")
					}
				}
				for _, conn := range conns {
					closeAtOnce(conn)
				}
			})
		}
		flood.Wait()
	}}
}

// closeAtOnce closes a connection without a state that would keep its port.
func closeAtOnce(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
}

// HostPort returns the host:port of a URL.
func HostPort(address string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	if _, _, err := net.SplitHostPort(parsed.Host); err != nil {
		return "", fmt.Errorf("got the URL %q, want one with a port: %w", address, err)
	}
	return parsed.Host, nil
}

// Opened returns the number of connections that were opened.
func (t *Tally) Opened() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts["connections opened"]
}

// Responses returns the number of responses with this HTTP status.
func (t *Tally) Responses(status int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[responses(status)]
}
