// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// unlabel removes the label from a ServiceAccount. The webhook that would add it again is
// not registered for that time.
func unlabel(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	api := env.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configuration, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	removed := configuration.DeepCopy()
	removed.Webhooks = append(removed.Webhooks[:1:1], removed.Webhooks[2])
	_, err = api.Update(ctx, removed, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	patch := []byte(`{"metadata":{"labels":{"lanyard.dev/identity":null}}}`)
	Eventually(ctx, func(ctx context.Context) (map[string]string, error) {
		account, err := env.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
		return account.Labels, nil
	}).ShouldNot(HaveKey("lanyard.dev/identity"))
	configuration.ResourceVersion = ""
	Eventually(ctx, func(ctx context.Context) error {
		now, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Webhooks = configuration.Webhooks
		_, err = api.Update(ctx, now, metav1.UpdateOptions{})
		return err
	}).Should(Succeed())
	waitForLabels(ctx) // of other specs
}

var _ = Describe("label serviceaccounts", Serial, Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "unlabelled")
		newServiceAccount(ctx, "unlabelled", "first", map[string]string{"lanyard.dev/aws-role-arn": role})
		newServiceAccount(ctx, "unlabelled", "second", map[string]string{"lanyard.dev/audience": "vault"})
		newServiceAccount(ctx, "unlabelled", "third", nil)
		unlabel(ctx, "unlabelled", "first")
		unlabel(ctx, "unlabelled", "second")
	})

	list := func(ctx context.Context, namespace string) *corev1.ServiceAccountList {
		GinkgoHelper()
		accounts, err := env.client.CoreV1().ServiceAccounts(namespace).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		return accounts
	}

	It("only shows them in a dry run", func(ctx SpecContext) {
		before := list(ctx, "unlabelled").Items
		expectOutputs(ctx, "label-dry-run", command.ExitOK, "label", "serviceaccounts", "--namespace", "unlabelled", "--dry-run=client")
		Expect(list(ctx, "unlabelled").Items).To(Equal(before))
	})

	It("labels those that need credentials, and changes nothing else", func(ctx SpecContext) {
		before := list(ctx, "unlabelled").Items
		expectOutput(ctx, env.kubeconfig, "label", command.ExitOK, BeEmpty(), "label", "serviceaccounts", "--namespace", "unlabelled")
		after := list(ctx, "unlabelled").Items
		for i := range after {
			name := after[i].Name
			if name != "first" && name != "second" {
				Expect(after[i]).To(Equal(before[i]))
				continue
			}
			Expect(after[i].Labels).To(Equal(map[string]string{"lanyard.dev/identity": "enabled"}), name)
			Expect(after[i].Annotations).To(Equal(before[i].Annotations), name)
		}
		code, out, _ := lanyard(ctx, "label", "serviceaccounts", "--namespace", "unlabelled")
		Expect(out).To(Equal("every ServiceAccount that needs credentials has the label\n"))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("shows which ones it labelled, as JSON", func(ctx SpecContext) {
		unlabel(ctx, "unlabelled", "first")
		expectOutput(ctx, env.kubeconfig, "label-one as JSON", command.ExitOK, BeEmpty(), "label", "serviceaccounts", "--namespace", "unlabelled", "--output", "json")
	})

	It("leaves out the namespaces that Lanyard is not called for", func(ctx SpecContext) {
		newServiceAccount(ctx, "kube-system", "annotated", map[string]string{"lanyard.dev/aws-role-arn": role})
		code, out, _ := lanyard(ctx, "label", "serviceaccounts", "--namespace", "kube-system")
		Expect(out).To(Equal("every ServiceAccount that needs credentials has the label\n"))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("labels in all namespaces", func(ctx SpecContext) {
		unlabel(ctx, "unlabelled", "first")
		code, out, _ := lanyard(ctx, "label", "sa", "-A")
		Expect(out).To(MatchRegexp(`unlabelled +first +labelled`))
		Expect(code).To(Equal(command.ExitOK))
		_, out, _ = lanyard(ctx, "label", "sa", "-A")
		Expect(out).To(Equal("every ServiceAccount that needs credentials has the label\n"))
	})

	It("reports those that could not be labelled", func(ctx SpecContext) {
		unlabel(ctx, "unlabelled", "second")
		DeferCleanup(func(ctx SpecContext) { lanyard(ctx, "label", "sa", "--namespace", "unlabelled") })
		kubeconfig := reader(ctx, "reader")
		expectOutputsAs(ctx, kubeconfig, "label-forbidden", command.ExitFound, BeEmpty(), "label", "sa", "--namespace", "unlabelled")
	})
})
