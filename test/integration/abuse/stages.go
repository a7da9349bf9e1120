// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lanyard-dev/lanyard/test/support/hostile"
)

// LargeHellos keeps n connections that each send a TLS hello of 65 kB, with 31,000 names of
// protocols, and wait.
func LargeHellos(n int) Load {
	hello := []byte(hostile.Hello(64 << 10))
	return connections("TLS hellos of 65 kB", n, func(t *Target) []dialer { return []dialer{t.plain(t.Reviews)} }, send(hello))
}

// AbandonedReviews opens count connections, 32 at a time. Each sends a review of 60 kB about
// a different ServiceAccount that does not exist, with the longest timeout, and disconnects.
func AbandonedReviews(count int) Load {
	return Load{"reviews that nobody waits for", func(ctx context.Context, target *Target, tally *Tally) {
		dial, random := target.encrypted(target.Reviews), rand.String(8)
		var opened atomic.Int64
		var senders sync.WaitGroup
		for range handshakes {
			senders.Go(func() {
				for i := opened.Add(1); i <= int64(count) && ctx.Err() == nil; i = opened.Add(1) {
					conn, err := dial(ctx)
					if err != nil {
						tally.add("connections refused or not answered")
						continue
					}
					tally.add("connections opened")
					body := target.unknown(random, i).annotatedPodReview(`"note":"` + strings.Repeat("x", 60_000) + `"`)
					_, _ = conn.Write(append([]byte(head("?timeout=30s", len(body))), body...))
					_ = conn.Close()
				}
			})
		}
		senders.Wait()
	}}
}

// ImpatientReviews keeps n connections that send reviews without a pause, each about a
// different ServiceAccount that does not exist, with a timeout of 10 ms.
func ImpatientReviews(n int) Load {
	return Load{"reviews of random ServiceAccounts that wait for 10 ms", func(ctx context.Context, target *Target, tally *Tally) {
		random := rand.String(8)
		var sent atomic.Int64
		keep(ctx, tally, n, target.encrypted(target.Reviews), func(_ context.Context, conn net.Conn) error {
			go readAll(conn, tally)
			for {
				body := target.unknown(random, sent.Add(1)).podReview(1)
				if _, err := conn.Write(append([]byte(head("?timeout=10ms", len(body))), body...)); err != nil {
					return err
				}
			}
		})
	}}
}

// readAll reads responses until the connection is closed.
func readAll(conn net.Conn, tally *Tally) {
	responded := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(responded, nil)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		tally.add(responses(response.StatusCode))
	}
}

// unknown returns a target with a ServiceAccount that does not exist.
func (t *Target) unknown(random string, i int64) *Target {
	return &Target{Namespace: "kube-system", ServiceAccount: fmt.Sprintf("r-%s-%d", random, i)}
}

// AtEachStage keeps n clients of each behavior at each stage of a review.
func AtEachStage(n int) Load {
	return Load{"each behavior at each stage", func(ctx context.Context, target *Target, tally *Tally) {
		post := func(t *Target, containers int) string {
			body := t.podReview(containers)
			return head("?timeout=30s", len(body)) + string(body)
		}
		dial := target.plain(target.Reviews)
		var clients sync.WaitGroup
		for i := range n {
			unknown := target.unknown(rand.String(8), int64(i))
			for _, stage := range []hostile.Stage{
				{Handshake: true, Next: hostile.Hello(60 << 10)},
				{Before: post(target, 1), Answered: true, Next: post(target, 1)},
				{Next: post(target, 1)},
				{Before: head("", 6<<20), Next: strings.Repeat(" ", 100<<10)},
				{Before: post(unknown, 1), Next: post(unknown, 1)},
				{Before: post(target, 200), Next: post(target, 200)},
			} {
				for _, behavior := range []hostile.Behavior{hostile.Silent, hostile.Slow, hostile.Endless, hostile.Gone, hostile.Pipelining} {
					client := hostile.Client{Dial: dial, TLS: true, Stage: stage, Behavior: behavior, Connections: 1}
					clients.Go(func() {
						for ctx.Err() == nil {
							client.Run(ctx)
							tally.add("connections opened")
							sleep(ctx, renewal)
						}
					})
				}
			}
		}
		clients.Wait()
	}}
}
