// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	// adoptionExpression is the chart's match condition with adoption. A test of the
	// chart compares the two.
	adoptionExpression = "testdata/adoption.cel"

	eksRole   = "eks.amazonaws.com/role-arn"
	otherRole = "arn:aws:iam::111122223333:role/other"
)

// registerAdoption registers a webhook for the ServiceAccounts of one namespace.
func registerAdoption(ctx SpecContext, process *webhook.Process, namespace string) {
	GinkgoHelper()
	expression, err := os.ReadFile(adoptionExpression)
	Expect(err).NotTo(HaveOccurred())
	config, err := webhook.ReadMutating(deployDir)
	Expect(err).NotTo(HaveOccurred())
	var own admissionregistrationv1.MutatingWebhook
	for _, entry := range config.Webhooks {
		if entry.Name == "serviceaccounts.lanyard.dev" {
			own = entry
		}
	}
	url := process.URL + *own.ClientConfig.Service.Path
	own.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: process.CA}
	own.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
	own.MatchConditions[1].Expression = string(expression)
	api := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err = api.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "adoption-" + namespace}, Webhooks: []admissionregistrationv1.MutatingWebhook{own},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return api.Delete(ctx, "adoption-"+namespace, metav1.DeleteOptions{}) })
}

var _ = Describe("A ServiceAccount with a peer's annotation", func() {
	It("is translated, follows its changes, and is never stored untranslated", func(ctx SpecContext) {
		process, err := webhook.Start(ctx, webhook.Options{
			Binary: cluster.binary, Kubeconfig: cluster.kubeconfig, Dir: GinkgoT().TempDir(),
			Args: []string{"--adopt=eks,azure,gcp"},
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(process.Stop)
		namespace := newNamespace(ctx)
		before := newAccount(ctx, namespace, "before", map[string]string{eksRole: role})
		Expect(before.Annotations).NotTo(HaveKey("lanyard.dev/aws-role-arn"))
		plain := newAccount(ctx, namespace, "plain", nil)
		registerAdoption(ctx, process, namespace)
		api := cluster.client.CoreV1().ServiceAccounts(namespace)
		annotate := func(name, key string, value any) (*corev1.ServiceAccount, error) {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
			Expect(err).NotTo(HaveOccurred())
			return api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}

		By("translating it with any write after the registration")
		Eventually(ctx, func() (map[string]string, error) {
			account, err := annotate("before", "example.com/touched", rand.String(8))
			if err != nil {
				return nil, err
			}
			return account.Annotations, nil
		}).Within(startTimeout).Should(HaveKeyWithValue("lanyard.dev/aws-role-arn", role))

		By("translating a new one")
		account := newAccount(ctx, namespace, "app", map[string]string{eksRole: role})
		Expect(account.Annotations).To(HaveKeyWithValue("lanyard.dev/aws-role-arn", role))
		Expect(account.Annotations).To(HaveKey("lanyard.dev/adopted"))
		Expect(account.Labels).To(HaveKeyWithValue("lanyard.dev/identity", "enabled"))

		By("injecting its pods, with the copy of the token")
		pod := createPod(ctx, namespace, newPod("pod", "app", 1))
		Expect(pod.Spec.Containers[0].VolumeMounts).To(ContainElement(SatisfyAll(
			HaveField("Name", "aws-iam-token"), HaveField("MountPath", "/var/run/secrets/eks.amazonaws.com/serviceaccount"))))

		By("following a change")
		account, err = annotate("app", eksRole, otherRole)
		Expect(err).NotTo(HaveOccurred())
		Expect(account.Annotations).To(HaveKeyWithValue("lanyard.dev/aws-role-arn", otherRole))

		By("removing the translation with the annotation")
		account, err = annotate("app", eksRole, nil)
		Expect(err).NotTo(HaveOccurred())
		for key := range account.Annotations {
			Expect(key).NotTo(HavePrefix("lanyard.dev/"))
		}
		Expect(account.Labels).NotTo(HaveKey("lanyard.dev/identity"))
		account, err = annotate("app", eksRole, otherRole)
		Expect(err).NotTo(HaveOccurred())
		Expect(account.Annotations).To(HaveKeyWithValue("lanyard.dev/aws-role-arn", otherRole))

		By("storing nothing untranslated while no replica responds")
		Expect(process.Stop()).To(Succeed())
		_, err = annotate("app", eksRole, role)
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")), "a change")
		_, err = annotate("app", eksRole, nil)
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")), "a removal")
		_, err = annotate("app", "lanyard.dev/aws-role-arn", nil)
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")), "a removal of the translation")
		_, err = annotate("plain", eksRole, role)
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")), "a first annotation")
		_, err = api.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "new", Annotations: map[string]string{eksRole: role}}}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")), "a new ServiceAccount")

		By("letting every other write pass meanwhile")
		_, err = annotate("app", "example.com/touched", rand.String(8))
		Expect(err).NotTo(HaveOccurred())
		_, err = annotate(plain.Name, "example.com/touched", rand.String(8))
		Expect(err).NotTo(HaveOccurred())
		account, err = api.Get(ctx, "app", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(account.Annotations).To(HaveKeyWithValue("lanyard.dev/aws-role-arn", otherRole))
	})
})
