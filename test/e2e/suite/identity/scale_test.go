// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"fmt"

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
	// A node of two cores takes minutes to run a hundred pods, so most of them are only created.
	const name, running, created = "100 pods, replicas killed", 20, 80
	const steps = 2
	want := expect.Outcomes{journal.AWS: expect.Granted(identities.Role)}
	checker.Begin(name, framework.Go, want)

	scale := newDeployment(ctx, "scale")
	gated := newDeployment(ctx, "gated", corev1.PodSchedulingGate{Name: "lanyard.dev/e2e"})
	for step := range steps {
		growWhileKilling(ctx, step, map[*appsv1.Deployment]int{scale: running * (step + 1) / steps, gated: created * (step + 1) / steps})
	}
	Eventually(func() (int32, error) {
		now, err := cluster.AppsV1().Deployments(namespace).Get(ctx, scale.Name, metav1.GetOptions{})
		return now.Status.AvailableReplicas, err
	}).WithContext(ctx).Should(BeEquivalentTo(running))

	pods := podsOf(ctx, scale)
	Expect(pods).To(HaveLen(running))
	for _, pod := range append(podsOf(ctx, gated), pods...) {
		Expect(podstream.HasIdentity(&pod)).To(BeTrue(), pod.Name)
	}
	// A pod is available as soon as its program runs. An SDK that gets no answer in time on a
	// busy machine fails, and its container starts again.
	results := make([]framework.Result, running)
	for i := range pods {
		Eventually(ctx, func(ctx context.Context) ([]framework.Result, error) {
			reported, err := cluster.Results(ctx, &pods[i], framework.SDKContainer)
			if len(reported) > 0 {
				results[i] = reported[0]
			}
			return reported, err
		}).Should(ConsistOf(HaveField("Error", BeEmpty())), pods[i].Name)
	}
	entries, err := checker.Clouds.Journal(ctx)
	Expect(err).NotTo(HaveOccurred())
	for i := range pods {
		// No token may have been denied.
		for _, entry := range expect.OfPod(entries, &pods[i], journal.AWS) {
			Expect(entry).To(HaveField("Status", 200), pods[i].Name)
		}
		checker.CheckResult(name, framework.Go, &pods[i], &results[i], want[journal.AWS], entries)
	}
})

// newDeployment creates a Deployment without replicas, until the end of the spec.
func newDeployment(ctx context.Context, name string, gates ...corev1.PodSchedulingGate) *appsv1.Deployment {
	GinkgoHelper()
	pod := framework.SDKPod("aws", framework.Go, "--forever", journal.AWS)
	pod.Spec.RestartPolicy, pod.Spec.SchedulingGates = corev1.RestartPolicyAlways, gates
	checker.Clouds.Redirect(&pod.Spec)
	labels := map[string]string{"workload": name}
	deployment, err := cluster.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return cluster.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	return deployment
}

// growWhileKilling scales the Deployments while replicas of the webhook are
// killed, and waits until their pods are created. The first step kills all
// replicas, and all their replacements until a pod is denied. The second step kills one
// replica.
func growWhileKilling(ctx context.Context, step int, sizes map[*appsv1.Deployment]int) {
	GinkgoHelper()
	replicas, err := cluster.WaitReady(ctx)
	Expect(err).NotTo(HaveOccurred())
	var done func(context.Context) error
	if step == 0 {
		done, err = cluster.KillPods(ctx, replicas)
	} else {
		done, err = cluster.KillContainer(ctx, &replicas[step%len(replicas)], "webhook")
	}
	Expect(err).NotTo(HaveOccurred())
	for deployment, size := range sizes {
		_, err = cluster.AppsV1().Deployments(namespace).Patch(ctx, deployment.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		if step == 0 {
			Eventually(ctx, denials).WithArguments(deployment).Should(ContainElement(HaveField("Message", ContainSubstring("lanyard-webhook did not respond"))))
		}
	}
	Expect(done(ctx)).To(Succeed())
	for deployment, size := range sizes {
		Eventually(ctx, podsOf).WithArguments(deployment).Should(HaveLen(size))
	}
}

// denials returns the conditions of the ReplicaSet: one of them is that a pod was denied.
func denials(ctx context.Context, deployment *appsv1.Deployment) ([]appsv1.ReplicaSetCondition, error) {
	sets, err := cluster.AppsV1().ReplicaSets(deployment.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector),
	})
	if err != nil || len(sets.Items) == 0 {
		return nil, err
	}
	return sets.Items[0].Status.Conditions, nil
}

func podsOf(ctx context.Context, deployment *appsv1.Deployment) []corev1.Pod {
	GinkgoHelper()
	pods, err := cluster.CoreV1().Pods(deployment.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector),
	})
	Expect(err).NotTo(HaveOccurred())
	return pods.Items
}
