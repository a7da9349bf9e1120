// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

var _ = It("injects each of 100 pods while the replicas are killed", func(ctx SpecContext) {
	const name, replicas = "100 pods, replicas killed", 100
	const steps = 4
	want := expect.Outcomes{journal.AWS: expect.Granted(identities.Role)}
	checker.Begin(name, framework.Go, want)

	deployment := newDeployment("scale", 0)
	checker.Clouds.Redirect(&deployment.Spec.Template.Spec)
	deployment, err := cluster.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return cluster.AppsV1().Deployments(namespace).Delete(ctx, deployment.Name, metav1.DeleteOptions{})
	})
	for step := range steps {
		growWhileKilling(ctx, deployment, step, replicas*(step+1)/steps)
	}
	Eventually(func() (int32, error) {
		now, err := cluster.AppsV1().Deployments(namespace).Get(ctx, deployment.Name, metav1.GetOptions{})
		return now.Status.AvailableReplicas, err
	}).WithContext(ctx).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(BeEquivalentTo(replicas))

	pods := podsOf(ctx, deployment)
	Expect(pods).To(HaveLen(replicas))
	entries, err := checker.Clouds.Journal(ctx)
	Expect(err).NotTo(HaveOccurred())
	for i := range pods {
		Expect(podstream.HasIdentity(&pods[i])).To(BeTrue(), pods[i].Name)
		// An SDK that gets no answer in time on a busy machine runs again. No
		// token may have been denied.
		for _, entry := range expect.OfPod(entries, &pods[i], journal.AWS) {
			Expect(entry).To(HaveField("Status", 200), pods[i].Name)
		}
		results, err := cluster.Results(ctx, &pods[i], framework.SDKContainer)
		Expect(err).NotTo(HaveOccurred())
		Expect(results).To(HaveLen(1), pods[i].Name)
		checker.CheckResult(name, framework.Go, &pods[i], &results[0], want[journal.AWS], entries)
	}
})

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	pod := framework.SDKPod("aws", framework.Go, "--forever", journal.AWS)
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

// growWhileKilling scales the deployment while replicas of the webhook are
// killed, and waits until its pods are created. The first step kills all
// replicas, and for two seconds all their replacements. Each other step kills
// one replica.
func growWhileKilling(ctx context.Context, deployment *appsv1.Deployment, step, size int) {
	GinkgoHelper()
	replicas, err := cluster.WaitReady(ctx, expect.Patience)
	Expect(err).NotTo(HaveOccurred())
	var done func(context.Context) error
	if step == 0 {
		done, err = cluster.KillPods(ctx, replicas, 2*time.Second)
	} else {
		done, err = cluster.KillContainer(ctx, &replicas[step%len(replicas)], "webhook")
	}
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.AppsV1().Deployments(namespace).Patch(ctx, deployment.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(done(ctx)).To(Succeed())
	Eventually(podsOf).WithArguments(ctx, deployment).WithContext(ctx).WithTimeout(expect.Patience).WithPolling(time.Second).
		Should(HaveLen(size))
}

func podsOf(ctx context.Context, deployment *appsv1.Deployment) []corev1.Pod {
	GinkgoHelper()
	pods, err := cluster.CoreV1().Pods(deployment.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector),
	})
	Expect(err).NotTo(HaveOccurred())
	return pods.Items
}
