// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/test/integration/abuse"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

// TestLiveReadsAreLimitedInRate checks the rate limit of the reads in fake time.
var _ = It("reads new ServiceAccounts while there are reviews of random ones", func(ctx SpecContext) {
	const accounts = 5
	r := newReplica(ctx, shared, shared.user)
	r.survives(ctx, func(ctx context.Context) {
		before := serviceAccountReads(ctx, r)
		r.abuseWhile(ctx, abuse.RandomServiceAccounts(math.MaxInt), 0, func() {
			for i := range accounts {
				name := fmt.Sprintf("new-%d", i)
				r.newServiceAccount(ctx, name, map[string]string{"lanyard.dev/audience": "x"})
				// Retry, as a controller does.
				Eventually(ctx, func(ctx context.Context) error { return r.injects(ctx, name) }).Should(Succeed())
			}
		})
		AddReportEntry("reads of ServiceAccounts", serviceAccountReads(ctx, r)-before)
	})
})

// serviceAccountReads returns the GET requests for ServiceAccounts that the API
// server has answered.
func serviceAccountReads(ctx context.Context, r *replica) (reads float64) {
	GinkgoHelper()
	text, err := r.target.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, line := range regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*\} .*$`).FindAllString(string(text), -1) {
		if strings.Contains(line, `resource="serviceaccounts"`) && strings.Contains(line, `verb="GET"`) && strings.Contains(line, `subresource=""`) {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			Expect(err).NotTo(HaveOccurred())
			reads += n
		}
	}
	return reads
}

// The guard runs in the API server. Here, only the users of the webhook matter.
var _ = It("serves others while the guard looks at a pod of 1 MB and 20 ServiceAccounts", func(ctx SpecContext) {
	r := newReplica(ctx, shared, shared.user)
	for i := range 20 {
		r.newServiceAccount(ctx, fmt.Sprintf("labelled-%d", i), map[string]string{"lanyard.dev/audience": "x"})
	}
	large := newPod("plain")
	for i := range 50_000 {
		large.Spec.Containers[0].Env = append(large.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("A%d", i)})
	}
	r.survives(ctx, func(ctx context.Context) {
		_, err := podstream.Create(ctx, r.client, r.target.Namespace, large)
		AddReportEntry("the large pod", fmt.Sprintf("error %v", err))
	})
})

var _ = Describe("Without the API server", func() {
	It("answers 503 for a ServiceAccount that it does not know: a plain pod is created, the guard denies the other", func(ctx SpecContext) {
		link := newLink(ctx, shared.user.Host)
		r := newReplica(ctx, shared, link.user(shared.user))
		link.cut()
		r.newServiceAccount(ctx, "new-plain", nil)
		r.newServiceAccount(ctx, "new-labelled", map[string]string{"lanyard.dev/audience": "x"})
		tally := r.abuseFor(ctx, patience, abuse.UnknownServiceAccount("new-plain"))
		Expect(tally.Responses(http.StatusServiceUnavailable)).To(Equal(1), tally.String())
		_, err := r.create(ctx, newPod("new-plain"))
		Expect(err).NotTo(HaveOccurred())
		// The guard reads ServiceAccounts from the API server's own watch.
		Eventually(ctx, func(ctx context.Context) error {
			_, err := r.create(ctx, newPod("new-labelled"))
			return err
		}).Should(MatchError(ContainSubstring("ValidatingAdmissionPolicy 'lanyard-guard-pods'")))
		r.expectAlive()
	})

	It("injects the pods of a ServiceAccount that it knows, but not after a write: the guard denies them", func(ctx SpecContext) {
		link := newLink(ctx, shared.user.Host)
		r := newReplica(ctx, shared, link.user(shared.user))
		// Until its watch has brought the ServiceAccount, it reads it live.
		Eventually(ctx, func(ctx context.Context) (int, error) {
			if err := r.injects(ctx, "target"); err != nil {
				return 0, err
			}
			return r.metric(ctx, `lanyard_serviceaccount_lookups_total{result="found",source="cache"}`)
		}).Should(BeNumerically(">", 0))
		link.cut()
		Eventually(ctx, func(ctx context.Context) error { return r.injects(ctx, "target") }).Should(Succeed())
		// The webhook cannot tell a forged write from one that is stored and changes the identity.
		r.abuseFor(ctx, patience, abuse.ForgedWrite())
		_, err := r.create(ctx, newPod("target"))
		Expect(err).To(MatchError(ContainSubstring("ValidatingAdmissionPolicy 'lanyard-guard-pods'")))
		r.expectAlive()
	})
})
