// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rotation_test waits until the kubelet rotates the tokens of running
// pods, and checks that the SDKs use the new ones.
package rotation_test

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

const (
	namespace = "rotation"
	// lifetime is the lifetime of the tokens. The kubelet renews them after
	// about 80 % of it, with some jitter.
	lifetime = 600 * time.Second
)

// The clouds' trust configuration and the ServiceAccounts.
var (
	//go:embed testdata/trust.yaml
	trust string
	//go:embed testdata/accounts.yaml
	accounts []byte
)

func TestRotation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "rotation")
}

var _ = It("Each SDK uses a rotated token without a restart of its pod", Label("slow"), func(ctx SpecContext) {
	cluster, err := framework.Connect()
	Expect(err).NotTo(HaveOccurred())
	install := framework.Install{Tool: framework.Helm, Certificates: framework.SelfManaged}
	Expect(install.Up(ctx, cluster)).To(Succeed())
	installed := true
	uninstall := func(ctx SpecContext) error {
		if !installed {
			return nil
		}
		installed = false
		return install.Down(ctx, cluster)
	}
	DeferCleanup(uninstall)
	clouds, err := cluster.StartClouds(ctx, trust)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return clouds.Stop(ctx) })
	Expect(cluster.SetUp(ctx, clouds, namespace, nil, accounts)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, namespace) })
	Expect(cluster.WaitInjected(ctx, namespace, "short-lived")).To(Succeed())

	var table framework.Table
	DeferCleanup(func() { fmt.Printf("\n%s\n", table.String()) })
	const name = "token rotated by the kubelet"
	pods := map[string]*corev1.Pod{}
	for _, language := range framework.Languages() {
		pod := framework.SDKPod("short-lived", language, "--every", "20s", framework.AWS, framework.GCP)
		clouds.Redirect(&pod.Spec)
		pods[language], err = cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		table.Set(name, language, framework.AWS, "**FAILED**")
		table.Set(name, language, framework.GCP, "**FAILED**")
	}

	started := time.Now()
	By("uninstalling Lanyard, which running pods do not need")
	Expect(uninstall(ctx)).To(Succeed())
	for language, pod := range pods {
		for _, cloud := range []string{framework.AWS, framework.GCP} {
			By(fmt.Sprintf("waiting for %s to send another token to %s, %.0f s after the start", language, cloud, time.Since(started).Seconds()))
			Eventually(func(g Gomega) {
				now, err := cluster.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				if now.Status.Phase == corev1.PodFailed {
					results, err := cluster.Results(ctx, pod, framework.SDKContainer)
					StopTrying(fmt.Sprintf("the program failed: %v %v", results, err)).Now()
				}
				g.Expect(framework.Container(now, framework.SDKContainer).RestartCount).To(BeZero())
				entries, err := clouds.Journal(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				expectRotated(g, expect.OfPod(entries, pod, cloud))
			}).WithContext(ctx).WithTimeout(lifetime + 30*time.Second).WithPolling(2 * time.Second).Should(Succeed())
			table.Set(name, language, cloud, "yes")
		}
	}
})

// expectRotated checks that a later token was used after the first, and that
// all tokens were accepted.
func expectRotated(g Gomega, entries []journal.Entry) {
	g.Expect(entries).NotTo(BeEmpty())
	g.Expect(entries).To(HaveEach(HaveField("Status", 200)))
	first := entries[0]
	g.Expect(first.Expires - first.IssuedAt).To(BeEquivalentTo(lifetime.Seconds()))
	last := slices.MaxFunc(entries, func(a, b journal.Entry) int { return cmp.Compare(a.IssuedAt, b.IssuedAt) })
	g.Expect(last.TokenID).NotTo(Equal(first.TokenID))
	g.Expect(last.IssuedAt).To(BeNumerically(">=", first.IssuedAt+int64(lifetime.Seconds()*3/4)))
}
