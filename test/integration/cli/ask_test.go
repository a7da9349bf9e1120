// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// bind binds a user to a ClusterRole in a namespace. No controller aggregates the role
// view here, so bind uses the role that it would aggregate. All roles have the right to list
// ServiceAccounts.
func bind(ctx context.Context, namespace, role, user string) {
	GinkgoHelper()
	_, err := env.client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-" + role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	waitToList(ctx, user, namespace, "", "serviceaccounts")
}

var _ = Describe("ask", Ordered, func() {
	var namespace *corev1.Namespace
	var asking *corev1.ServiceAccount

	pod := func() *unstructured.Unstructured { return probe.Pod("cart") }

	// answer returns the answer for a user; an administrator if it is empty.
	answer := func(ctx context.Context, user string, serviceAccount *corev1.ServiceAccount, pod *unstructured.Unstructured) workload.Answer {
		GinkgoHelper()
		config := rest.CopyConfig(env.plane.Config())
		config.Impersonate.UserName = user
		asker, err := workload.NewAsker(config, newSettings(), workload.Options{})
		Expect(err).NotTo(HaveOccurred())
		return asker.Ask(ctx, &namespace.ObjectMeta, &serviceAccount.ObjectMeta, pod)
	}

	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "asked")
		newServiceAccount(ctx, "asked", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		newServiceAccount(ctx, "asked", "plain", nil)
		bind(ctx, "asked", "view", "on-call")
		var err error
		namespace, err = env.client.CoreV1().Namespaces().Get(ctx, "asked", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		asking, err = env.client.CoreV1().ServiceAccounts("asked").Get(ctx, "cart", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("evaluates the rules here for a user who may not create pods", func(ctx SpecContext) {
		local := answer(ctx, "on-call", asking, pod())
		Expect(local.Problem()).NotTo(HaveOccurred())
		Expect(local.Local).To(Equal("you may not create pods in the namespace asked"))
		Expect(local.Missing).To(Equal("create pods in the namespace asked"))
		Expect(local.Pod.GetAnnotations()).To(HaveKeyWithValue("lanyard.dev/injected", "aws"))
	})

	It("sends the dry run for a user who may create pods", func(ctx SpecContext) {
		Eventually(ctx, func(ctx context.Context) map[string]string {
			got := answer(ctx, "", asking, pod())
			Expect(got.Problem()).NotTo(HaveOccurred())
			Expect(got.Local).To(BeEmpty())
			return got.Pod.GetAnnotations()
		}).Should(HaveKeyWithValue("lanyard.dev/injected", "aws"))
	})

	It("tells a denial by Pod Security from a missing right: both have the code 403", func(ctx SpecContext) {
		_, err := env.client.CoreV1().Namespaces().Patch(ctx, "asked", types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod := probe.Pod("cart")
		Expect(unstructured.SetNestedField(pod.Object, true, "spec", "hostNetwork")).To(Succeed())
		Eventually(ctx, func(ctx context.Context) *workload.Denial { return answer(ctx, "", asking, pod).Denial }).
			Should(HaveValue(And(HaveField("By", workload.ByOther), HaveField("Message", ContainSubstring("PodSecurity")))))
		local := answer(ctx, "on-call", asking, pod)
		Expect(local.Missing).NotTo(BeEmpty())
	})
})

func newSettings() *annotations.Settings {
	GinkgoHelper()
	s, err := options.New().Settings(annotations.CommonAPIServerAudiences())
	Expect(err).NotTo(HaveOccurred())
	return s
}
