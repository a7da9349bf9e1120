// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

// sdks checks the pods that the identity suite checks with the webhook.
func sdks() {
	DescribeTable("let the SDKs get the credentials of", func(ctx SpecContext, account string, want expect.Outcomes) {
		checker.InEachLanguage(ctx, namespace, "account "+account, account, want)
	},
		Entry("a ServiceAccount with all three clouds", "three-clouds", identities.ThreeClouds()),
		Entry("a ServiceAccount with a provider, by direct federation", "gcp-direct",
			expect.Outcomes{journal.GCP: expect.Granted(identities.Principals + "identity:gcp-direct")}),
		Entry("a ServiceAccount without annotations, which has none", "none", identities.Nothing()),
	)

	It("inject init containers, sidecars and the ephemeral containers of kubectl debug", func(ctx SpecContext) {
		const name = "init container, sidecar, kubectl debug"
		checker.Begin(name, framework.Go, identities.ThreeClouds())
		pod := framework.SDKPod("three-clouds", framework.Go, append([]string{"--forever"}, framework.AllClouds()...)...)
		once, sidecar := framework.SDK(framework.Go, framework.AllClouds()...), *pod.Spec.Containers[0].DeepCopy()
		once.Name, sidecar.Name, sidecar.RestartPolicy = "init", "sidecar", new(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = []corev1.Container{once, sidecar}
		pod = checker.Create(ctx, namespace, pod)
		_, err := cluster.WaitContainer(ctx, pod, framework.SDKContainer, framework.Started)
		Expect(err).NotTo(HaveOccurred())
		checker.Debug(ctx, pod)
		for _, container := range []string{once.Name, sidecar.Name, framework.SDKContainer, expect.Debugger} {
			checker.Check(ctx, name, framework.Go, pod, container, identities.ThreeClouds())
		}
	})
}
