// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// Without these the suite could pass by accident: the same pods, of the same
// accounts, in the same cluster, get nothing where Lanyard gives them nothing.
var _ = Describe("Without Lanyard", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		Expect(install.Down(ctx, cluster)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(install.Up(ctx, cluster)).To(Succeed())
			Expect(cluster.WaitInjected(ctx, namespace, "three-clouds")).To(Succeed())
		})
	})

	It("the same pods find no credentials", func(ctx SpecContext) {
		inEachLanguage(ctx, "Lanyard uninstalled", "three-clouds", nothing())
	})

	It("the pods that a webhook lets through empty while it is down find none for their whole lives", func(ctx SpecContext) {
		// As Lanyard's peers are installed: no guard, and failures are ignored.
		peer := framework.Install{
			Tool: framework.Helm, Certificates: framework.SelfManaged, Values: []string{"guard.enabled=false", "webhook.failurePolicy=Ignore", "shutdownDelaySeconds=0"},
		}
		Expect(peer.Up(ctx, cluster)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return peer.Down(ctx, cluster) })
		Expect(cluster.WaitInjected(ctx, namespace, "three-clouds")).To(Succeed())
		_, err := cluster.Run(ctx, "kubectl", "scale", "deployment/"+framework.Deployment, "--namespace", framework.Namespace, "--replicas", "0")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.WaitReady(ctx, expect.Patience)
		Expect(err).NotTo(HaveOccurred())
		inEachLanguage(ctx, "webhook down, no guard", "three-clouds", nothing())
	})
})
