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

// mostGoroutines is more than 280 connections with two goroutines each, 256 live reads, and
// the program itself have.
const mostGoroutines = 1000

var _ = DescribeTable("It has few goroutines, and injects the pods of new ServiceAccounts, while there are", func(ctx SpecContext, load abuse.Load) {
	r := newReplica(ctx, shared, shared.user)
	r.survives(ctx, func(ctx context.Context) {
		most, looks := 0, 0
		r.abuseWhile(ctx, load, 0, func() {
			r.newServiceAccount(ctx, "new", map[string]string{"lanyard.dev/audience": "x"})
			for start := time.Now(); time.Since(start) < stageTime; time.Sleep(250 * time.Millisecond) {
				most = max(most, r.goroutines(ctx))
				looks++
			}
			// As a controller does, which tries again.
			Eventually(ctx, func(ctx context.Context) error { return r.injects(ctx, "new") }).Should(Succeed())
		})
		AddReportEntry("goroutines", fmt.Sprintf("at most %d, of %d looks", most, looks))
		Expect(most).To(BeNumerically("<", mostGoroutines))
	})
},
	Entry("250 TLS hellos of 65 kB", abuse.LargeHellos(250)),
	Entry("2,000 reviews that nobody waits for", abuse.AbandonedReviews(2000)),
	Entry("100 clients that review random ServiceAccounts and wait for 10 ms", abuse.ImpatientReviews(100)),
	Entry("clients that misbehave at each stage", abuse.AtEachStage(8)),
)

// goroutines returns the number of goroutines of the webhook. Its metrics must be served.
func (r *replica) goroutines(ctx context.Context) int {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.MetricsURL, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile(`(?m)^go_goroutines (\d+)$`).FindSubmatch(text)
	Expect(found).NotTo(BeNil(), "%s", text)
	n, err := strconv.Atoi(string(found[1]))
	Expect(err).NotTo(HaveOccurred())
	return n
}
