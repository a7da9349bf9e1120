// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/integration/abuse"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

var (
	mixedTime = flag.Duration("mixed", 10*time.Second, "how long the mixture of all attacks takes")
	accounts  = flag.Int("accounts", 0, "the number of other ServiceAccounts with an identity meanwhile")
)

// everything is a mixture of all attacks.
func everything() abuse.Load {
	return abuse.Together("everything", abuse.FromTheNetwork(), abuse.AtEachStage(2), abuse.LargeHellos(100),
		abuse.Repeat("reviews", time.Second, abuse.AbandonedReviews(200)), abuse.ImpatientReviews(20), abuse.ThroughTheAPIServer())
}

// It has a separate control plane, because of the ServiceAccounts.
var _ = It("stays alive and serves during all attacks at once", func(ctx SpecContext) {
	c := newCluster(ctx)
	createAccounts(ctx, c, *accounts)
	c.installGuard(ctx)
	r := newReplica(ctx, c, c.user)
	r.survives(ctx, func(ctx context.Context) { r.abuseFor(ctx, *mixedTime, everything()) })
	info, err := os.Stat(r.LogFile)
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("bytes of log", info.Size())
})

func createAccounts(ctx context.Context, c *cluster, n int) {
	GinkgoHelper()
	Expect(c.plane.CreateNamespace(ctx, "crowd")).To(Succeed())
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error {
			_, err := c.client.CoreV1().ServiceAccounts("crowd").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("app-", i), Labels: map[string]string{"lanyard.dev/identity": "enabled"},
				Annotations: map[string]string{"lanyard.dev/aws-role-arn": fmt.Sprint("arn:aws:iam::111122223333:role/app-", i)},
			}}, metav1.CreateOptions{})
			return err
		})
	}
	Expect(group.Wait()).To(Succeed())
}

// The attackers have no client certificate. No API server calls this webhook.
var _ = DescribeTable("With --client-ca-file, the webhook stays alive while there are", func(ctx SpecContext, load abuse.Load) {
	dir := GinkgoT().TempDir()
	_, _, ca, err := controlplane.NewServingCertificate(dir, "127.0.0.1")
	Expect(err).NotTo(HaveOccurred())
	caFile := filepath.Join(dir, "client-ca.crt")
	Expect(os.WriteFile(caFile, ca, 0o600)).To(Succeed())
	r := startReplica(ctx, shared, shared.user, "--client-ca-file", caFile)
	r.target.Namespace, r.target.ServiceAccount = "kube-system", "default"
	r.abuseWhile(ctx, load, 0, func() { r.expectFewGoroutines(ctx) })
	r.expectAlive()
	peak, err := r.limit.Peak(r.PID())
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("peak in MiB", peak>>20)
},
	Entry("250 TLS hellos of 65 kB", abuse.LargeHellos(250)),
	Entry("2,000 reviews that nobody waits for", abuse.AbandonedReviews(2000)),
	Entry("clients that misbehave at each stage", abuse.AtEachStage(8)),
)
