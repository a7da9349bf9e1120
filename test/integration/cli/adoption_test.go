// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

const (
	eksRole = "eks.amazonaws.com/role-arn"
	// many is how many ServiceAccounts are adopted at once: more than two pages of 20.
	many = 60
)

// callForPeers registers Lanyard for the annotations of other webhooks, as the chart
// does with config.adopt.
func callForPeers(ctx context.Context) {
	GinkgoHelper()
	expression, err := os.ReadFile("../testdata/adoption.cel")
	Expect(err).NotTo(HaveOccurred())
	adopted := func(ctx context.Context) (map[string]string, error) {
		account, err := env.client.CoreV1().ServiceAccounts("shop").Create(ctx, serviceAccount("adopted", map[string]string{eksRole: role}), dryRun)
		if err != nil {
			return nil, err
		}
		return account.Annotations, nil
	}
	former := setExpression(ctx, string(expression))
	DeferCleanup(func(ctx SpecContext) {
		setExpression(ctx, former)
		Eventually(ctx, adopted).ShouldNot(HaveKey("lanyard.dev/adopted"))
	})
	Eventually(ctx, adopted).Should(HaveKey("lanyard.dev/adopted"))
}

// adopting returns a configuration file of a webhook that adopts from peers.
func adopting(peers string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "config.yaml")
	Expect(os.WriteFile(file, []byte("adopt: ["+peers+"]\n"), 0o600)).To(Succeed())
	return file
}

// setExpression changes the match condition for ServiceAccounts, and returns the
// previous one.
func setExpression(ctx context.Context, expression string) (former string) {
	GinkgoHelper()
	api := env.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		configuration, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var condition *admissionregistrationv1.MatchCondition
		for i := range cluster.Entry(configuration, cluster.ServiceAccountWebhook).MatchConditions {
			found := &cluster.Entry(configuration, cluster.ServiceAccountWebhook).MatchConditions[i]
			if found.Name == "label-and-annotations-disagree" {
				condition = found
			}
		}
		former, condition.Expression = condition.Expression, expression
		_, err = api.Update(ctx, configuration, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
	return former
}

var _ = Describe("label with adoption", Serial, func() {
	It("adopts the ServiceAccounts of several pages at once, and status shows nothing left over", func(ctx SpecContext) {
		newNamespace(ctx, "peers")
		DeferCleanup(func(ctx SpecContext) error {
			return env.client.CoreV1().ServiceAccounts("peers").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		})
		for i := range many {
			newServiceAccount(ctx, "peers", fmt.Sprintf("app-%d", i), map[string]string{eksRole: role})
		}
		newServiceAccount(ctx, "peers", "plain", nil)
		config := adopting("")
		kubeconfig, further := inPages(20)
		run := func(args ...string) string {
			GinkgoHelper()
			before := further.Load()
			code, out, errOut := lanyardAs(ctx, kubeconfig, "", append(args, "--namespace", "peers", "--config", config)...)
			Expect(errOut).To(BeEmpty())
			Expect(code).To(Equal(command.ExitOK), out)
			Expect(further.Load()-before).To(BeNumerically(">=", many/20), "pages after the first")
			return out
		}
		label := func(args ...string) string { return run(append([]string{"label", "serviceaccounts"}, args...)...) }
		status := func() string { return run("status") }

		By("leaving them alone while nothing is adopted")
		Expect(status()).To(Equal("no ServiceAccount asks for an identity\n"))
		Expect(label()).To(Equal("every ServiceAccount that needs credentials has the label\n"))
		config = adopting("eks")

		By("warning if nobody knows what is adopted")
		_, out, errOut := lanyard(ctx, "status", "--namespace", "peers")
		Expect(out).To(Equal("no ServiceAccount asks for an identity\n"))
		Expect(errOut).To(HavePrefix("warning: serviceaccount peers/app-0 has the annotation " + eksRole + ", which Lanyard only reads with settings of the webhook. "))

		By("not adopting if nobody knows what is adopted")
		_, out, errOut = lanyard(ctx, "label", "sa", "--namespace", "peers")
		Expect(out).To(Equal("every ServiceAccount that needs credentials has the label\n"))
		Expect(errOut).To(ContainSubstring("settings could not be read: "))

		By("showing them")
		callForPeers(ctx)
		Expect(strings.Count(status(), "unguarded")).To(Equal(many))
		Expect(strings.Count(label("--dry-run=client"), "would be adopted\n")).To(Equal(many))
		Expect(strings.Count(label("--dry-run=server"), "  adopted (server dry run)\n")).To(Equal(many))
		Expect(strings.Count(status(), "unguarded")).To(Equal(many))

		By("adopting them")
		Expect(strings.Count(label(), "  adopted\n")).To(Equal(many))
		accounts, err := env.client.CoreV1().ServiceAccounts("peers").List(ctx, metav1.ListOptions{LabelSelector: "lanyard.dev/identity=enabled"})
		Expect(err).NotTo(HaveOccurred())
		Expect(accounts.Items).To(HaveLen(many))
		Expect(accounts.Items).To(HaveEach(HaveField("Annotations", HaveKeyWithValue("lanyard.dev/aws-role-arn", role))))
		Expect(status()).NotTo(ContainSubstring("unguarded"))
		Expect(strings.Count(status(), "  guarded")).To(Equal(many))
		Expect(label()).To(Equal("every ServiceAccount that needs credentials has the label\n"))
	})

	It("reports ServiceAccounts that the webhook does not translate", func(ctx SpecContext) {
		newNamespace(ctx, "others")
		newServiceAccount(ctx, "others", "app", map[string]string{"azure.workload.identity/client-id": "00000000-0000-0000-0000-000000000001"})
		callForPeers(ctx)
		code, out, _ := lanyard(ctx, "label", "sa", "--namespace", "others", "--config", adopting("eks, azure"))
		Expect(out).To(ContainSubstring("the webhook did not adopt it"))
		Expect(code).To(Equal(command.ExitFound))
	})
})
