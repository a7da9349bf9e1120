// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/integration/abuse"
)

// loadTime is the maximum time of a load. A load that only keeps connections open
// always takes keepTime.
const (
	loadTime = 4 * time.Second
	keepTime = 2 * time.Second
)

var _ = DescribeTable("The webhook stays alive and serves, while there are", func(ctx SpecContext, limit time.Duration, load abuse.Load) {
	r := newReplica(ctx, shared, shared.user)
	r.survives(ctx, func(ctx context.Context) { r.abuseFor(ctx, limit, load) })
},
	// An editor of a namespace, through the API server.
	Entry("dry runs of pods with 32,000 containers", loadTime, abuse.ManyContainersInDryRun(2)),
	// The API server takes most of a second for each that the webhook does not deny.
	Entry("dry runs of ServiceAccounts with names of 2.9 MB", loadTime, abuse.LongNamesInDryRun(20)),
	// A pod, with requests.
	Entry("reviews of pods with 32,000 containers", loadTime, abuse.ManyContainers(12)),
	Entry("reviews of ServiceAccounts with names of 60 KiB", loadTime, abuse.ForgedNames(4096)),
	Entry("reviews of objects with very many annotations and very long texts", loadTime, abuse.OversizedObjects(3)),
	// A pod, with connections.
	Entry("headers of one MiB on each port", keepTime, abuse.HeaderFlood(8)),
	Entry("1,500 bodies that do not come", keepTime, abuse.AbsentBodies(1500)),
	Entry("100 clients that do not read their responses", keepTime, abuse.UnreadAnswers(100, 200, 900)),
	Entry("90 clients that do not read responses of 178 KB", loadTime, abuse.UnreadAnswers(90, 36)),
	Entry("8,000 idle connections to all ports", keepTime, abuse.IdleConnections(2000)),
	Entry("400 connections that send a byte per second", keepTime, abuse.SlowDrip(400)),
)

var _ = It("answers reviews of 32,000 old and new ephemeral containers", func(ctx SpecContext) {
	const reviews = 8
	r := newReplica(ctx, shared, shared.user)
	r.survives(ctx, func(ctx context.Context) {
		tally := r.abuseFor(ctx, patience, abuse.EphemeralContainers(reviews))
		Expect(tally.Responses(http.StatusOK)).To(Equal(reviews), tally.String())
	})
})
