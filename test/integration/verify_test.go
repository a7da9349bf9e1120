// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// verified returns the annotations of a ServiceAccount with a verified start.
func verified() map[string]string {
	return map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/verify": "wait"}
}

// tryAccount creates a ServiceAccount with a verified start as a dry run.
func tryAccount(ctx context.Context, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other", Annotations: verified()}}
	_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, dryRun)
	return err
}

var _ = Describe("A verified start", func() {
	It("is denied without an image, and follows the configuration file", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		Expect(tryAccount(ctx, namespace)).To(MatchError(SatisfyAll(
			ContainSubstring(`metadata.annotations[lanyard.dev/verify]: Forbidden: has value "wait", but the cluster has no image that verifies`),
			ContainSubstring("--verify-image to the image of lanyard-webhook"))))

		By("setting the image")
		Expect(os.WriteFile(cluster.config, []byte("verify-image: registry.example/lanyard-webhook:v1\n"), 0o600)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(os.WriteFile(cluster.config, nil, 0o600)).To(Succeed())
			Eventually(ctx, func(ctx context.Context) error { return tryAccount(ctx, namespace) }).Should(HaveOccurred())
		})
		Eventually(ctx, func(ctx context.Context) error { return tryAccount(ctx, namespace) }).Should(Succeed())
		newAccount(ctx, namespace, "app", verified())

		By("adding the container once, to a pod with the second pass of the API server")
		registerSidecarInjector(ctx, namespace)
		var stored *corev1.Pod
		Eventually(ctx, func(ctx context.Context) ([]corev1.Container, error) {
			pod := newPod("pod", "app", 1)
			pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "image"}}
			pod.Annotations = map[string]string{"lanyard.dev/containers": "main-0,init"}
			var err error
			stored, err = cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, dryRun)
			if err != nil {
				return nil, err
			}
			return stored.Spec.Containers, nil
		}).Within(startTimeout).Should(HaveLen(2))
		Expect(stored.Spec.InitContainers).To(HaveLen(2))
		added := stored.Spec.InitContainers[1]
		Expect(added).To(SatisfyAll(HaveField("Name", "lanyard-verify"), HaveField("Image", "registry.example/lanyard-webhook:v1"), HaveField("Args", []string{"verify"})))
		Expect(value(added.Env, "AWS_ROLE_ARN")).To(Equal(role))

		By("meeting the Pod Security Standard, which names no container of Lanyard")
		patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
		_, err := cluster.client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(ctx context.Context) error {
			_, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("pod", "app", 1), dryRun)
			return err
		}).Should(MatchError(SatisfyAll(ContainSubstring(`violates PodSecurity "restricted:latest"`), ContainSubstring("main-0"), Not(ContainSubstring("lanyard-verify")))))
	})
})
