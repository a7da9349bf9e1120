// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

// These specs show that the others do not pass by accident: without Lanyard,
// the same pods with the same ServiceAccounts in the same cluster get no
// credentials.
var _ = Describe("Without Lanyard", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		Expect(install.Down(ctx, cluster)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(install.Up(ctx, cluster)).To(Succeed())
			Expect(cluster.WaitInjected(ctx, namespace, "three-clouds")).To(Succeed())
		})
	})

	It("the same pods find no credentials", func(ctx SpecContext) {
		checker.InEachLanguage(ctx, namespace, "Lanyard uninstalled", "three-clouds", identities.Nothing())
	})

	It("pods that are created while the webhook is down never find credentials", func(ctx SpecContext) {
		// The usual configuration of other webhooks: no guard, and failures are
		// ignored.
		peer := framework.Install{
			Values: []string{"guard.enabled=false", "webhook.failurePolicy=Ignore", "shutdownDelaySeconds=0"},
		}
		Expect(peer.Up(ctx, cluster)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return peer.Down(ctx, cluster) })
		Expect(cluster.WaitInjected(ctx, namespace, "three-clouds")).To(Succeed())
		_, err := cluster.Run(ctx, "kubectl", "scale", "deployment/"+framework.Deployment, "--namespace", framework.Namespace, "--replicas", "0")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.WaitReady(ctx)
		Expect(err).NotTo(HaveOccurred())
		checker.InEachLanguage(ctx, namespace, "webhook down, no guard", "three-clouds", identities.Nothing())
	})
})
