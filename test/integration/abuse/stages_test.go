// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/integration/abuse"
)

// stageTime is how long an attack of a stage takes.
const stageTime = 5 * time.Second

// mostGoroutines is more than 272 connections with two goroutines each, their live reads, and
// the program itself need.
const mostGoroutines = 1000

var _ = DescribeTable("It has few goroutines, and injects the pods of new ServiceAccounts, while there are", func(ctx SpecContext, load abuse.Load) {
	r := newReplica(ctx, shared, shared.user)
	r.survives(ctx, func(ctx context.Context) {
		r.abuseWhile(ctx, load, 0, func() {
			r.newServiceAccount(ctx, "new", map[string]string{"lanyard.dev/audience": "x"})
			r.expectFewGoroutines(ctx)
			// Retry, as a controller does.
			Eventually(ctx, func(ctx context.Context) error { return r.injects(ctx, "new") }).Should(Succeed())
		})
	})
},
	Entry("250 TLS hellos of 65 kB", abuse.LargeHellos(250)),
	Entry("100 clients that review random ServiceAccounts and wait for 10 ms", abuse.ImpatientReviews(100)),
	Entry("clients that misbehave at each stage", abuse.AtEachStage(8)),
)

var _ = It("has few goroutines while 2,000 clients leave, and the API server does not answer live reads", func(ctx SpecContext) {
	link := newLink(ctx, shared.user.Host)
	r := newReplica(ctx, shared, link.user(shared.user))
	r.survives(ctx, func(ctx context.Context) {
		link.stalled.Lock()
		defer link.stalled.Unlock()
		r.abuseWhile(ctx, abuse.AbandonedReviews(2000), 0, func() { r.expectFewGoroutines(ctx) })
	})
})

// expectFewGoroutines looks at the number of goroutines for a while.
func (r *replica) expectFewGoroutines(ctx context.Context) {
	GinkgoHelper()
	most, looks := 0, 0
	for start := time.Now(); time.Since(start) < stageTime; time.Sleep(250 * time.Millisecond) {
		// On a busy machine, the connection may end before its request is read.
		Eventually(ctx, func(ctx context.Context) error {
			n, err := r.metric(ctx, "go_goroutines")
			most = max(most, n)
			return err
		}).Should(Succeed())
		looks++
	}
	AddReportEntry("goroutines", fmt.Sprintf("at most %d, of %d looks", most, looks))
	Expect(most).To(BeNumerically("<", mostGoroutines))
}

// metric returns the value of a series, which must be served.
func (r *replica) metric(ctx context.Context, series string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.MetricsURL, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\d+)$`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("got %s without %s", response.Status, series)
	}
	return strconv.Atoi(string(found[1]))
}
