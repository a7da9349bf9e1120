// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/cmd/lanyard/app"
)

// newRolledOut creates a namespace with workloads whose pods are current, stale and
// without credentials.
func newRolledOut(ctx context.Context, namespace string) {
	GinkgoHelper()
	newNamespace(ctx, namespace)
	newServiceAccount(ctx, namespace, "cart", nil)
	newServiceAccount(ctx, namespace, "idle", map[string]string{"lanyard.dev/audience": "vault"})
	newServiceAccount(ctx, namespace, "plain", nil)
	newServiceAccount(ctx, namespace, "short", map[string]string{"lanyard.dev/aws-role-arn": role})
	set := newDeployment(ctx, namespace, "cart", "cart")
	newReplica(ctx, set, "cart-1-without", nil)
	_, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("unrelated", "plain"), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())

	reannotate(ctx, namespace, "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
	expectInjected(ctx, namespace, "cart", "aws")
	newReplica(ctx, set, "cart-1-stale", nil)
	reannotate(ctx, namespace, "cart", map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/audience": "other"})
	Eventually(ctx, func(ctx context.Context) (string, error) {
		pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("x", "cart"), dryRun)
		if err != nil {
			return "", err
		}
		volumes, err := json.Marshal(pod.Spec.Volumes)
		return string(volumes), err
	}).Within(timeout).Should(ContainSubstring("other"))
	newReplica(ctx, set, "cart-1-current", nil)
	newReplica(ctx, set, "cart-1-opted-out", map[string]string{"lanyard.dev/inject": "false"})

	// Its tokens have a lifetime of their own, so its hash differs from that of other pods.
	expectInjected(ctx, namespace, "short", "aws")
	job, err := cluster.client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "short-1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "short", UID: "x", Controller: new(true)}}},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: newPod("", "").Spec.Containers}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	pod := newPod("short-1-current", "short")
	pod.Annotations = map[string]string{"lanyard.dev/token-expiration-seconds": "600"}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	_, err = cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// expectInjected waits until pods of the ServiceAccount are injected.
func expectInjected(ctx context.Context, namespace, name, providers string) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (map[string]string, error) {
		pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("x", name), dryRun)
		if err != nil {
			return nil, err
		}
		return pod.Annotations, nil
	}).Within(timeout).Should(HaveKeyWithValue("lanyard.dev/injected", providers))
}

var _ = Describe("status", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { newRolledOut(ctx, "counted") })

	It("counts the pods of each workload", func(ctx SpecContext) {
		expectOutputs(ctx, "status", app.ExitOK, "status", "--namespace", "counted")
	})

	It("lists only workloads with outdated pods", func(ctx SpecContext) {
		expectOutputs(ctx, "status-stale", app.ExitFound, "status", "--namespace", "counted", "--stale")
	})

	It("finds the same in all namespaces", func(ctx SpecContext) {
		_, out, _ := lanyard(ctx, "status", "--all-namespaces", "--stale")
		Expect(out).To(MatchRegexp(`counted +cart +guarded +deployment/cart +4 +1 +1 +1 +1\n`))
	})

	It("says that nothing is outdated", func(ctx SpecContext) {
		newNamespace(ctx, "fresh")
		code, out, _ := lanyard(ctx, "status", "--namespace", "fresh", "--stale")
		Expect(out).To(Equal("every pod has the credentials that its ServiceAccount asks for\n"))
		Expect(code).To(Equal(app.ExitOK))
		_, out, _ = lanyard(ctx, "status", "--namespace", "fresh")
		Expect(out).To(Equal("no ServiceAccount asks for an identity\n"))
	})

	It("shows excluded namespaces, and does not call them outdated", func(ctx SpecContext) {
		_, err := cluster.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left-out", Labels: map[string]string{"lanyard.dev/inject": "disabled"}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		newServiceAccount(ctx, "left-out", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		_, err = cluster.client.CoreV1().Pods("left-out").Create(ctx, newPod("cart-0", "cart"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, out, _ := lanyard(ctx, "status", "--namespace", "left-out")
		Expect(out).To(MatchRegexp(`(?m)^cart +excluded +pod/cart-0 +1 +0 +0 +1 +0\n`))
		code, _, _ := lanyard(ctx, "status", "--namespace", "left-out", "--stale")
		Expect(code).To(Equal(app.ExitOK))
	})
})
