// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// allow gives a ServiceAccount a rule for the whole cluster, until the spec ends.
func allow(ctx context.Context, name, namespace, account string, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	rbac := cluster.client.RbacV1()
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(rbac.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		Expect(rbac.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	})
}

var _ = Describe("The program, with --metrics-secure", func() {
	It("serves the metrics with HTTPS, to users who may get /metrics", func(ctx SpecContext) {
		// The rules of the chart's value metrics.secure.
		allow(ctx, "secure-metrics", webhook.Namespace, webhook.Account,
			rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}})
		process := launch(ctx, webhook.Options{Kubeconfig: cluster.kubeconfig, Args: []string{"--metrics-secure"}})
		Expect(controlplane.WaitReady(ctx, process.HealthURL+"/readyz")).To(Succeed())
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "prometheus", nil)
		token, err := cluster.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "prometheus", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		url := strings.Replace(process.MetricsURL, "http://", "https://", 1)
		get := func(authorization string) int {
			GinkgoHelper()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			Expect(err).NotTo(HaveOccurred())
			request.Header.Set("Authorization", authorization)
			response, err := process.Client().Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			return response.StatusCode
		}
		Expect(get("")).To(Equal(http.StatusUnauthorized))
		// The API server learns of the rights to ask, and then of the right to read, from watches.
		Eventually(func() int { return get("Bearer " + token.Status.Token) }).Within(startTimeout).Should(Equal(http.StatusForbidden))
		Expect(get("Bearer " + token.Status.Token + "x")).To(Equal(http.StatusUnauthorized))
		allow(ctx, "metrics-reader", namespace, "prometheus", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
		Eventually(func() int { return get("Bearer " + token.Status.Token) }).Within(startTimeout).Should(Equal(http.StatusOK))
		status, body := fetch(ctx, process.MetricsURL)
		Expect(status).To(Equal(http.StatusBadRequest), body) // HTTP, to a server of HTTPS
	})
})
