// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

var _ = It("injects each of 100 pods while the replicas are killed", func(ctx SpecContext) {
	const name, replicas = "100 pods, replicas killed", 100
	want := expect.Outcomes{framework.AWS: expect.Granted(identities.Role)}
	checker.Begin(name, framework.Go, want)

	deployment := newDeployment("scale", replicas)
	checker.Clouds.Redirect(&deployment.Spec.Template.Spec)
	killAll(ctx)
	deployment, err := cluster.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return cluster.AppsV1().Deployments(namespace).Delete(ctx, deployment.Name, metav1.DeleteOptions{})
	})
	killed := killUntilCreated(ctx, deployment)
	AddReportEntry("kills", killed)
	Expect(killed).To(BeNumerically(">", 0))

	pods := podsOf(ctx, deployment)
	Expect(pods).To(HaveLen(replicas))
	entries, err := checker.Clouds.Journal(ctx)
	Expect(err).NotTo(HaveOccurred())
	for i := range pods {
		Expect(podstream.HasIdentity(&pods[i])).To(BeTrue(), pods[i].Name)
		// An SDK that gets no answer in time on a busy machine runs again. No
		// token may have been denied.
		for _, entry := range expect.OfPod(entries, &pods[i], framework.AWS) {
			Expect(entry).To(HaveField("Status", 200), pods[i].Name)
		}
		results, err := cluster.Results(ctx, &pods[i], framework.SDKContainer)
		Expect(err).NotTo(HaveOccurred())
		Expect(results).To(HaveLen(1), pods[i].Name)
		checker.CheckResult(name, framework.Go, &pods[i], &results[0], want[framework.AWS], entries)
	}
})

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	pod := framework.SDKPod("aws", framework.Go, "--forever", framework.AWS)
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	labels := map[string]string{"workload": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}
}

// killAll kills all replicas, and for two seconds all their replacements.
func killAll(ctx context.Context) {
	GinkgoHelper()
	pods, err := cluster.WaitReady(ctx, expect.Patience)
	Expect(err).NotTo(HaveOccurred())
	done, err := cluster.KillPods(ctx, pods, 2*time.Second)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(done)
}

// killUntilCreated kills one replica after another until all pods are created.
// It returns the number of kills when all pods are available.
func killUntilCreated(ctx context.Context, deployment *appsv1.Deployment) (killed int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		if len(podsOf(ctx, deployment)) < int(*deployment.Spec.Replicas) {
			pods, err := cluster.WaitReady(ctx, expect.Patience)
			g.Expect(err).NotTo(HaveOccurred())
			done, err := cluster.KillContainer(ctx, &pods[killed%len(pods)], "webhook")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(done(ctx)).To(Succeed())
			killed++
		}
		now, err := cluster.AppsV1().Deployments(namespace).Get(ctx, deployment.Name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(now.Status.AvailableReplicas).To(Equal(*deployment.Spec.Replicas))
	}).WithContext(ctx).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Succeed())
	return killed
}

func podsOf(ctx context.Context, deployment *appsv1.Deployment) []corev1.Pod {
	GinkgoHelper()
	pods, err := cluster.CoreV1().Pods(deployment.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector),
	})
	Expect(err).NotTo(HaveOccurred())
	return pods.Items
}
