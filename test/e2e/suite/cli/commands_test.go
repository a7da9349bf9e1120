// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// The pages.
var (
	checkPage   = newPage("check", "lanyard check")
	explainPage = newPage("explain", "lanyard explain")
	statusPage  = newPage("status", "lanyard status")
	tokenPage   = newPage("token", "lanyard token")
	trustPage   = newPage("trust", "lanyard trust")
)

var _ = Describe("lanyard in a terminal", Ordered, ContinueOnFailure, func() {
	// AfterAll would run before the cleanup of the last spec.
	BeforeAll(func() {
		DeferCleanup(func(ctx SpecContext) {
			for len(ends) > 0 {
				last := len(ends) - 1
				Expect(ends[last](ctx)).To(Succeed())
				ends = ends[:last]
			}
		})
	})

	It("check, before the install", func(ctx SpecContext) {
		checkPage.record(ctx, &recording{
			when:    "Run this before you install Lanyard. A warning does not stop the install; this one is about AWS and Azure.",
			command: "lanyard check --pre",
		})
		checkPage.record(ctx, &recording{when: "This is the output without Lanyard.", command: "lanyard check", code: 1})
	})

	describeNotInstalled()

	It("check", func(ctx SpecContext) {
		installed(ctx)
		checkPage.record(ctx, &recording{
			when:    "Run this after the install, after an upgrade, and when something is wrong.",
			command: "lanyard check",
		})
		checkPage.record(ctx, &recording{
			when:    "Try your own ServiceAccount. As a plugin of kubectl, the program is `kubectl lanyard`.",
			command: "kubectl lanyard check --namespace shop --service-account reports",
		})
	})

	It("explain", func(ctx SpecContext) {
		for _, r := range []recording{
			{when: "A pod that has its credentials looks like this.", command: "lanyard explain pod cart-0 --namespace staging"},
			{when: "A Deployment, and the credentials of its next pod:", command: "lanyard explain deployment reports --namespace shop"},
			{when: "The ServiceAccount is not annotated. That is not a mistake, so the exit code is 0.", command: "lanyard explain pod web-0 --namespace staging"},
			{when: "The annotation lacks its prefix.", command: "lanyard explain pod search-0 --namespace staging", code: 1},
			{when: "Lanyard is not called for the namespace.", command: "lanyard explain pod cart-0 --namespace legacy", code: 1},
			{when: "The pod opted out.", command: "lanyard explain pod cart-debug --namespace staging"},
			{when: "The pod is older than the annotation.", command: "lanyard explain pod late-0 --namespace staging", code: 1},
			{when: "The pod leaves out a container.", command: "lanyard explain pod cart-proxied --namespace staging"},
		} {
			explainPage.record(ctx, &r)
		}
	})

	It("status", func(ctx SpecContext) {
		makeStale(ctx)
		statusPage.record(ctx, &recording{
			when:    "See who has credentials. In a terminal of less than 120 columns, the workloads are below their ServiceAccounts.",
			command: "lanyard status --namespace staging",
		})
		statusPage.record(ctx, &recording{
			when: "See the workloads that must be restarted. The exit code is 1 if anything is listed, and 2 if that is not known for all pods.", code: 1,
			command: "lanyard status --namespace staging --stale",
		})
		statusPage.record(ctx, &recording{
			when: "The same without dry runs, as for a user who may not create pods.", code: 1,
			command: "lanyard status --namespace shop --stale --no-dry-run",
		})
	})

	It("status, for a restart", func(ctx SpecContext) {
		statusPage.record(ctx, &recording{
			when: "The names of the Deployments, StatefulSets and DaemonSets, for `kubectl rollout restart`.", code: 1,
			command: "lanyard status --stale --output name --namespace shop",
		})
		statusPage.record(ctx, &recording{
			command: "kubectl rollout restart $(lanyard status --stale -o name -n shop) -n shop && kubectl rollout status deployment/cart -n shop >/dev/null", verbatim: true,
			before: makeStale,
		})
		rolledOut(ctx, "cart")
		statusPage.record(ctx, &recording{when: "Afterwards nothing is outdated.", command: "lanyard status --stale --namespace shop"})
	})

	It("token", func(ctx SpecContext) {
		for _, r := range []recording{
			{when: "See the claims of a token. The cloud compares issuer, subject and audience with its trust.", command: "lanyard token cart --namespace shop --for aws"},
			{when: "Ask AWS whether it accepts the token. The output ends with the command that asks from inside a pod.", verbatim: true, command: "lanyard token cart --namespace shop --for aws --exchange"},
			{when: "Ask Azure.", verbatim: true, command: "lanyard token mail --namespace shop --for azure --exchange"},
			{when: "Ask Google Cloud.", verbatim: true, command: "lanyard token reports --namespace shop --for gcp --exchange"},
			{when: "The cloud does not trust this ServiceAccount. The code and the message are the cloud's; cause and repair are Lanyard's.", verbatim: true, command: "lanyard token intern --namespace shop --for aws --exchange", code: 1},
		} {
			tokenPage.record(ctx, &r)
		}
		_, raw := terminals[0].run(ctx, "lanyard token cart --namespace shop --for vault --raw")
		Expect(raw).To(MatchRegexp(`^[\w-]+\.[\w-]+\.[\w-]+\n$`))
	})

	It("check --exchange", func(ctx SpecContext) { recordExchange(ctx) })

	It("trust", func(ctx SpecContext) {
		const issuer = " --issuer https://issuer.example.com/production"
		for _, r := range []recording{
			{when: "See the issuer of the cluster.", command: "lanyard trust issuer"},
			{command: "lanyard trust issuer" + issuer + " --to issuer", before: without("issuer")},
			{when: "Compare the public documents with the keys of the cluster. Here the API servers still have another `--service-account-issuer`.", code: 1, command: "lanyard check --issuer https://issuer.example.com/production"},
			{command: "lanyard trust issuer --to cluster", before: without("cluster")},
			{when: "This is the output when everything is right.", command: "lanyard check --issuer https://kubernetes.default.svc.cluster.local"},
		} {
			trustPage.record(ctx, &r)
		}
		Expect(filepath.Join(user.directory, "issuer", ".well-known", "openid-configuration")).To(BeARegularFile())
		_, shown := terminals[0].run(ctx, "lanyard trust aws cart --namespace shop")
		Expect(shown).To(ContainSubstring("system:serviceaccount:shop:cart"))
		Expect(shown).To(ContainSubstring("oidc-provider/kubernetes.default.svc"))
	})

	It("completes the names that are in the cluster", func(ctx SpecContext) {
		for command, want := range map[string]string{
			"explain pod --namespace staging cart-":           "cart-0\ncart-debug\ncart-proxied\n",
			"explain --namespace shop deployment/":            "deployment/cart\ndeployment/reports\n",
			"token --namespace shop ca":                       "cart\n",
			"status --namespace sho":                          "shop\n",
			"check --namespace staging --service-account sea": "search\n",
		} {
			_, shown := terminals[0].run(ctx, "lanyard __complete "+command+" 2>/dev/null")
			names, _, _ := strings.Cut(shown, ":")
			Expect(names).To(Equal(want), command)
		}
	})

	It("check and explain, without the guard", func(ctx SpecContext) {
		policies := cluster.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
		binding, err := policies.Get(ctx, "lanyard-guard-pods", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(policies.Delete(ctx, binding.Name, metav1.DeleteOptions{})).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error {
			binding.ResourceVersion, binding.UID = "", ""
			_, err := policies.Create(ctx, binding, metav1.CreateOptions{})
			return err
		})
		checkPage.record(ctx, &recording{when: "Somebody removed a part of the guard.", command: "lanyard check", code: 1})
	})

	It("check and explain, while no replica runs", func(ctx SpecContext) {
		scale(ctx, "0")
		DeferCleanup(func(ctx SpecContext) {
			scale(ctx, "2")
			Expect(cluster.WaitInjected(ctx, shop, "cart")).To(Succeed())
		})
		// For a moment, the node still forwards calls to the last replica, which results
		// in another error.
		Eventually(ctx, callWebhook).Should(MatchError(ContainSubstring("connection refused")))
		// The API server learns later that the guard is whole again.
		Eventually(ctx, createPod).Should(MatchError(ContainSubstring("lanyard-guard-pods")))
		checkPage.record(ctx, &recording{when: "No replica of the webhook runs.", command: "lanyard check", code: 1})
		explainPage.record(ctx, &recording{
			when:    "No replica of the webhook runs, so the guard denies new pods.",
			command: "lanyard explain deployment cart --namespace shop", code: 1,
		})
	})

	describeUsers()

	describeIncidents()

	It("is as recorded", func() {
		Expect(coloured).To(BeNumerically(">", 10), "commands with colours")
		for _, p := range pages {
			p.check()
		}
	})
})

// scale sets the number of replicas of the webhook, and waits for them.
func scale(ctx context.Context, replicas string) {
	GinkgoHelper()
	_, err := cluster.Run(ctx, "kubectl", "scale", "deployment/"+framework.Deployment, "--namespace", framework.Namespace, "--replicas", replicas)
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.WaitReady(ctx)
	Expect(err).NotTo(HaveOccurred())
}

// callWebhook makes the API server call the webhooks of all installations, with a dry run.
func callWebhook(ctx context.Context) error {
	return dryRun(ctx, map[string]string{"lanyard.dev/probe": "true"})
}

// createPod creates a pod that needs credentials, as a dry run.
func createPod(ctx context.Context) error { return dryRun(ctx, nil) }

// dryRun creates a pod of the ServiceAccount cart with the labels, as a dry run.
func dryRun(ctx context.Context, labels map[string]string) error {
	pod := framework.SDKPod("cart", framework.Go, journal.AWS)
	pod.Labels = labels
	_, err := cluster.CoreV1().Pods(shop).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// without returns a function that removes a directory of the user.
func without(directory string) func(context.Context) {
	return func(context.Context) {
		GinkgoHelper()
		Expect(os.RemoveAll(filepath.Join(user.directory, directory))).To(Succeed())
	}
}
