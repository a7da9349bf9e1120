// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

var _ = Describe("A pod that the API server stores", func() {
	DescribeTable("of an account with all three clouds has them in every container", func(ctx SpecContext, n int) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		pod := newPod("pod", "app", n)
		pod.Spec.InitContainers = []corev1.Container{
			{Name: "init", Image: "image"},
			{Name: "sidecar", Image: "image", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		}
		stored := createPod(ctx, namespace, pod)
		Expect(stored.Annotations).To(HaveKeyWithValue("lanyard.dev/injected", "aws,azure,gcp"))
		Expect(stored.Spec.Containers).To(HaveLen(n))
		for _, c := range append(stored.Spec.InitContainers, stored.Spec.Containers...) {
			expectThreeClouds(c.Env, c.VolumeMounts)
		}
		volume := tokenVolume(stored, "bound-sa-token")
		Expect(volume.DefaultMode).To(HaveValue(BeEquivalentTo(420)))
		Expect(volume.Sources).To(HaveLen(4))
	},
		Entry("when it has 2", 2),
		Entry("when it has 20", 20),
	)

	It("can have a token for each of its audiences, bound to it", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		stored := createPod(ctx, namespace, newPod("pod", "app", 1))
		tokens := 0
		for _, source := range tokenVolume(stored, "bound-sa-token").Sources {
			if source.ServiceAccountToken == nil {
				continue
			}
			tokens++
			request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences:         []string{source.ServiceAccountToken.Audience},
				ExpirationSeconds: source.ServiceAccountToken.ExpirationSeconds,
				BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: stored.Name, UID: stored.UID},
			}}
			_, err := cluster.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "app", request, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(tokens).To(Equal(3))
	})

	It("of an account without identity is as it was sent", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", map[string]string{"example.com/other": "x"})
		stored := createPod(ctx, namespace, newPod("pod", "app", 1))
		Expect(stored.Annotations).To(BeEmpty())
		Expect(stored.Spec.Containers[0].Env).To(BeEmpty())
		Expect(tokenVolume(stored, "bound-sa-token")).To(BeNil())
	})

	It("has the identity that its account has today", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", map[string]string{"lanyard.dev/aws-role-arn": role})
		Expect(value(createPod(ctx, namespace, newPod("first", "app", 1)).Spec.Containers[0].Env, "AWS_ROLE_ARN")).To(Equal(role))
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":%q}}}`, role+"-2")
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, "app", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(value(createPod(ctx, namespace, newPod("second", "app", 1)).Spec.Containers[0].Env, "AWS_ROLE_ARN")).To(Equal(role + "-2"))
	})

	It("passes the API server's validation, whatever it was", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		injected := 0
		for seed := range uint64(200) {
			pod := decodePod(randpod.New(rand.New(rand.NewPCG(seed, 1))))
			pod.Namespace = namespace
			stored, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, dryRun)
			if err != nil {
				// Some random pods have the token mount path with a trailing slash.
				Expect(err).To(MatchError(ContainSubstring("invalid_mount_path")), "seed %d", seed)
				continue
			}
			if stored.Annotations["lanyard.dev/injected"] != "" {
				injected++
			}
		}
		Expect(injected).To(BeNumerically(">", 100), "so few pods were injected that this shows nothing")
	})
})

// decodePod drops fields that are not in the API.
func decodePod(object map[string]any) *corev1.Pod {
	GinkgoHelper()
	text, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	var pod corev1.Pod
	Expect(json.Unmarshal(text, &pod)).To(Succeed())
	return &pod
}

var _ = Describe("A pod that is left alone", func() {
	It("says inject: false", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		pod := newPod("pod", "app", 1)
		pod.Annotations = map[string]string{"lanyard.dev/inject": "false"}
		Expect(createPod(ctx, namespace, pod).Spec.Containers[0].Env).To(BeEmpty())
	})

	It("is in a namespace that opts out", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		label := []byte(`{"metadata":{"labels":{"lanyard.dev/inject":"disabled"}}}`)
		_, err := cluster.client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, label, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		newAccount(ctx, namespace, "app", threeClouds())
		// The API server learns of the label from its own watch.
		Eventually(ctx, func(g Gomega) {
			pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("pod", "app", 1), dryRun)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Spec.Containers[0].Env).To(BeEmpty())
		}).Within(startTimeout).Should(Succeed())
	})

	It("mirrors a static pod", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "default-with-identity", threeClouds())
		pod := newPod("pod", "", 1)
		pod.Annotations = map[string]string{"kubernetes.io/config.mirror": "hash"}
		pod.Spec.NodeName = "node"
		patch := []byte(`{"metadata":{"annotations":{"lanyard.dev/audience":"x"}}}`)
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, "default", types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		stored := createPod(ctx, namespace, pod)
		Expect(stored.Spec.Volumes).To(BeEmpty())
	})
})

var _ = Describe("A pod that is denied", func() {
	It("has a malformed account, and the message says what is wrong where", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		malformedAccount(ctx, namespace, "app")
		_, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("pod", "app", 1), metav1.CreateOptions{})
		Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(SatisfyAll(
			ContainSubstring(`admission webhook "pods.lanyard.dev" denied the request`),
			ContainSubstring("invalid_annotation: serviceaccount %q", namespace+"/app"),
			ContainSubstring(`metadata.annotations[lanyard.dev/aws-role-arn]: Invalid value: "arn:aws:s3:::bucket": must be the ARN of an IAM role`),
		)))
	})

	It("has an identity that its namespace does not allow", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", map[string]string{"lanyard.dev/aws-role-arn": role})
		policy := []byte(`{"metadata":{"annotations":{"lanyard.dev/allowed-identities":"arn:aws:iam::*:role/team-*"}}}`)
		_, err := cluster.client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, policy, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			_, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("pod", "app", 1), dryRun)
			g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			g.Expect(err).To(MatchError(ContainSubstring("identity_not_allowed")))
		}).Within(startTimeout).Should(Succeed())
	})
})

// malformedAccount creates a ServiceAccount that could be older than the installation.
// The validating webhook would now reject it, so its namespace is excluded first.
func malformedAccount(ctx SpecContext, namespace, name string) {
	GinkgoHelper()
	optOut := []byte(`{"metadata":{"name":"lanyard"},"webhooks":[{"name":"serviceaccounts.lanyard.dev","namespaceSelector":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system","lanyard-system",` +
		fmt.Sprintf("%q", namespace) + `]}]}}]}`)
	_, err := cluster.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(ctx, "lanyard", types.StrategicMergePatchType, optOut, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"lanyard.dev/aws-role-arn": "arn:aws:s3:::bucket"}}}
	Eventually(ctx, func() error {
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		return err
	}).Within(startTimeout).Should(Succeed())
}

var _ = Describe("An ephemeral container", func() {
	debug := func(ctx SpecContext, client kubernetes.Interface, pod *corev1.Pod, name string) *corev1.Pod {
		GinkgoHelper()
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "image"},
		})
		updated, err := client.CoreV1().Pods(pod.Namespace).UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		return updated
	}

	It("has the identity of its pod, and so has the one after it", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		pod := createPod(ctx, namespace, newPod("pod", "app", 1))
		pod = debug(ctx, cluster.client, pod, "first")
		pod = debug(ctx, cluster.client, pod, "second")
		Expect(pod.Spec.EphemeralContainers).To(HaveLen(2))
		for _, c := range pod.Spec.EphemeralContainers {
			expectThreeClouds(c.Env, c.VolumeMounts)
		}
	})

	It("can be added to a pod that has no identity yet, without one", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", nil)
		pod := createPod(ctx, namespace, newPod("pod", "app", 1))
		pod = debug(ctx, cluster.client, pod, "before")
		patch := []byte(`{"metadata":{"annotations":{"lanyard.dev/audience":"x"}}}`)
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, "app", types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod = debug(ctx, cluster.client, pod, "after")
		Expect(pod.Spec.EphemeralContainers[1].Env).To(BeEmpty())
	})
})

var _ = Describe("A ServiceAccount", func() {
	It("is labelled while it asks for an identity, and no longer", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		account := newAccount(ctx, namespace, "app", threeClouds())
		Expect(account.Labels).To(HaveKeyWithValue("lanyard.dev/identity", "enabled"))
		account.Annotations = nil
		account, err := cluster.client.CoreV1().ServiceAccounts(namespace).Update(ctx, account, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(account.Labels).NotTo(HaveKey("lanyard.dev/identity"))
	})

	DescribeTable("is denied with a malformed annotation at its own write", func(ctx SpecContext, values map[string]string) {
		values["lanyard.dev/aws-roel-arn"] = role
		_, err := cluster.client.CoreV1().ServiceAccounts(newNamespace(ctx)).Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "app", Annotations: values},
		}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("metadata.annotations[lanyard.dev/aws-roel-arn]: Forbidden")))
	},
		Entry("without a record of adoption", map[string]string{}),
		Entry("with a record of adoption that was written by hand", map[string]string{"lanyard.dev/adopted": ""}),
	)
})
