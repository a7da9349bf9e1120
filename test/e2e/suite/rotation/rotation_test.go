// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rotation_test waits until the kubelet rotates the tokens of running
// pods, and checks that the SDKs use the new ones.
package rotation_test

import (
	"cmp"
	"context"
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
	expect.Suite(t, "rotation")
}

// method is a way to install Lanyard.
type method interface {
	Up(ctx context.Context, c *framework.Cluster) error
	Down(ctx context.Context, c *framework.Cluster) error
}

// started is a running pod, with the row of the table.
type started struct {
	row, language string
	pod           *corev1.Pod
}

// The pods of both methods wait for the kubelet at the same time.
var _ = It("Each SDK uses a rotated token without a restart of its pod", Label("slow"), func(ctx SpecContext) {
	cluster, err := framework.Connect()
	Expect(err).NotTo(HaveOccurred())
	clouds, err := cluster.StartClouds(ctx, trust)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return clouds.Stop(ctx) })
	Expect(cluster.SetUp(ctx, clouds, namespace, nil, []byte("{}"))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, namespace) })

	var table framework.Table
	DeferCleanup(func() { fmt.Printf("\n%s\n", table.String()) })
	var pods []started
	start := func(row string) {
		Expect(cluster.WaitInjected(ctx, namespace, "short-lived")).To(Succeed())
		for _, language := range framework.Languages() {
			pod := framework.SDKPod("short-lived", language, "--every", "20s", journal.AWS, journal.GCP)
			clouds.Redirect(&pod.Spec)
			pod, err = cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			pods = append(pods, started{row, language, pod})
			table.Set(row, language, journal.AWS, "**FAILED**")
			table.Set(row, language, journal.GCP, "**FAILED**")
		}
	}
	whileInstalled(ctx, cluster, &framework.Install{}, func() {
		Expect(cluster.CreateAccounts(ctx, namespace, accounts)).To(Succeed())
		start("token rotated by the kubelet")
	})
	whileInstalled(ctx, cluster, framework.Policies{}, func() { start("the same, injected by policies") })

	begun := time.Now()
	for _, p := range pods {
		for _, cloud := range []string{journal.AWS, journal.GCP} {
			By(fmt.Sprintf("waiting for %s to send another token to %s, %.0f s after the start", p.language, cloud, time.Since(begun).Seconds()))
			Eventually(func(g Gomega) {
				now, err := cluster.CoreV1().Pods(namespace).Get(ctx, p.pod.Name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				if now.Status.Phase == corev1.PodFailed {
					results, err := cluster.Results(ctx, p.pod, framework.SDKContainer)
					StopTrying(fmt.Sprintf("the program failed: %v %v", results, err)).Now()
				}
				g.Expect(framework.Container(now, framework.SDKContainer).RestartCount).To(BeZero())
				entries, err := clouds.Journal(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				expectRotated(g, expect.OfPod(entries, p.pod, cloud))
			}).WithContext(ctx).WithTimeout(lifetime + expect.Patience).WithPolling(2 * time.Second).Should(Succeed())
			table.Set(p.row, p.language, cloud, "yes")
		}
	}
})

// whileInstalled installs Lanyard, and uninstalls it after do, because running pods do not need it.
func whileInstalled(ctx SpecContext, cluster *framework.Cluster, by method, do func()) {
	GinkgoHelper()
	Expect(by.Up(ctx, cluster)).To(Succeed())
	installed := true
	uninstall := func(ctx SpecContext) error {
		if !installed {
			return nil
		}
		installed = false
		return by.Down(ctx, cluster)
	}
	DeferCleanup(uninstall)
	do()
	Expect(uninstall(ctx)).To(Succeed())
}

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
