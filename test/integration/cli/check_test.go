// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	webhook "github.com/lanyard-dev/lanyard/cmd/webhook/app"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
)

// Serial and Ordered, because some of these damage the installation temporarily.
var _ = Describe("check", Serial, Ordered, func() {
	BeforeAll(deletePods)

	It("finds nothing wrong with an installation", func(ctx SpecContext) {
		deletePods(ctx)
		expectOutputs(ctx, "check", command.ExitOK, "check", "--namespace", "shop", "--service-account", "cart", "--config", adopting(""))
	})

	It("says what lanyard-webhook check says", func(spec SpecContext) {
		// The command would retry forever for the ServiceAccount without an identity, so the
		// second of these dry runs ends it.
		ctx, cancel := context.WithCancel(spec)
		defer cancel()
		var dryRuns atomic.Int32
		kubeconfig := proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.HasSuffix(r.URL.Path, "/namespaces/shop/pods") && dryRuns.Add(1) == 3 {
				cancel()
			}
			next.ServeHTTP(w, r)
		})
		for _, name := range []string{"cart", "default"} {
			_, out, _ := lanyard(ctx, "check", "--namespace", "shop", "--service-account", name, "--output", "json")
			var report struct{ Findings []finding.Finding }
			Expect(json.Unmarshal([]byte(out), &report)).To(Succeed())
			var want []string
			for _, f := range report.Findings {
				if f.About == "probe" || f.About == "dry run" {
					want = append(want, f.String())
				}
			}
			Expect(want).To(HaveLen(2))
			command := webhook.NewCommand(nil)
			command.SetArgs([]string{"check", "--kubeconfig", kubeconfig, "--namespace", "shop", "--service-account", name, "--timeout", "10m"})
			var stdout bytes.Buffer
			command.SetOut(&stdout)
			err := command.ExecuteContext(ctx)
			if name == "cart" {
				Expect(err).NotTo(HaveOccurred())
				Expect(stdout.String()).To(Equal(want[0] + "\n" + want[1] + "\n"))
				continue
			}
			Expect(stdout.String()).To(Equal(want[0] + "\n"))
			Expect(err).To(MatchError("check pods of ServiceAccount shop/default: " + want[1]))
		}
	})

	It("chooses a ServiceAccount that needs credentials", func(ctx SpecContext) {
		code, out, _ := lanyard(ctx, "check", "--namespace", "shop")
		Expect(out).To(MatchRegexp("pods of ServiceAccount [a-z-]+/[a-z-]+ get credentials: [a-z, ]+, from volume bound-sa-token"))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("reports a namespace that does not exist", func(ctx SpecContext) {
		code, out, _ := lanyard(ctx, "check", "--namespace", "shopp")
		Expect(out).To(ContainSubstring("× the namespace shopp does not exist\n"))
		Expect(code).To(Equal(command.ExitFound))
	})

	It("does not choose one in a namespace that Lanyard is not called for", func(ctx SpecContext) {
		_, err := env.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a-first", Labels: map[string]string{"lanyard.dev/inject": "disabled"}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		newServiceAccount(ctx, "a-first", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		_, out, _ := lanyard(ctx, "check", "--namespace", "shop")
		Expect(out).To(ContainSubstring("√ pods of ServiceAccount "))
		Expect(out).NotTo(ContainSubstring("a-first/cart"))
	})

	It("reports a ServiceAccount without an identity", func(ctx SpecContext) {
		deletePods(ctx)
		expectOutputs(ctx, "check-no-identity", command.ExitFound, "check", "--namespace", "shop", "--service-account", "default", "--config", adopting(""))
	})

	It("says of a denied pod that Lanyard denied it", func(ctx SpecContext) {
		newNamespace(ctx, "check-denied")
		newServiceAccount(ctx, "check-denied", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		_, err := env.client.CoreV1().Namespaces().Patch(ctx, "check-denied", types.MergePatchType, []byte(`{"metadata":{"annotations":{"lanyard.dev/allowed-identities":"-"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) error { // other specs let check choose a ServiceAccount
			return env.client.CoreV1().ServiceAccounts("check-denied").Delete(ctx, "cart", metav1.DeleteOptions{})
		})
		Eventually(ctx, func(ctx context.Context) string {
			_, out, _ := lanyard(ctx, "check", "--namespace", "check-denied", "--service-account", "cart")
			return out
		}).Should(And(
			ContainSubstring("√ the API server can call the webhook\n"),
			MatchRegexp("× pods of ServiceAccount check-denied/cart get no credentials: .*identity_not_allowed"),
		))
	})

	It("shows the error of the API server if it cannot call the webhook", func(ctx SpecContext) {
		api := env.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
		configuration, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		redirect := func(ctx context.Context, i int, url string) {
			GinkgoHelper()
			patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/%d/clientConfig/url","value":"%s"}]`, i, url)
			_, err := api.Patch(ctx, "lanyard", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		DeferCleanup(func(ctx SpecContext) {
			for i := range configuration.Webhooks {
				redirect(ctx, i, *configuration.Webhooks[i].ClientConfig.URL)
			}
			Eventually(ctx, func(ctx context.Context) int {
				code, _, _ := lanyard(ctx, "check", "--namespace", "shop")
				return code
			}).Should(Equal(command.ExitOK))
		})
		for _, i := range []int{0, 2} { // those for pods and for the probe
			redirect(ctx, i, "https://127.0.0.1:1/mutate-v1-pod")
		}
		Eventually(ctx, func(ctx context.Context) string {
			_, out, _ := lanyard(ctx, "check", "--namespace", "shop")
			return out
		}).Should(MatchRegexp(`× the API server cannot call the webhook: .*failed calling webhook "probe.lanyard.dev".*connection refused`))
		// explain finds the cause of a denial by the guard.
		Eventually(ctx, func(ctx context.Context) string {
			_, out, _ := lanyard(ctx, "explain", "sa/cart", "--namespace", "shop")
			return out
		}).Should(MatchRegexp(`new pods: denied\n  the guard denies new pods, because the API server cannot call Lanyard: .*connection refused`))
	})

	It("skips what the user may not read", func(ctx SpecContext) {
		code, out, errOut := lanyardAs(ctx, user("nobody"), "", "check", "--namespace", "shop")
		Expect(out).To(ContainSubstring("? webhook configurations cannot be read: "))
		Expect(errOut).To(HavePrefix("error: checks that could not run: "))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("checks a cluster before the install", func(ctx SpecContext) {
		expectOutputs(ctx, "check-pre", command.ExitOK, "check", "--pre")
	})

	It("reports missing rights before the install", func(ctx SpecContext) {
		code, out, _ := lanyardAs(ctx, user("visitor"), "", "check", "--pre", "--install-namespace", "tools")
		Expect(out).To(ContainSubstring("× you may not create deployments.apps in the namespace tools"))
		Expect(code).To(Equal(command.ExitFound))
	})

	It("reports that Lanyard is not installed", func(ctx SpecContext) {
		api := env.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
		configuration, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Delete(ctx, "lanyard", metav1.DeleteOptions{})).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			configuration.ResourceVersion, configuration.UID = "", ""
			_, err := api.Create(ctx, configuration, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			expectInjected(ctx, "shop", "cart", "aws")
		})
		code, out, _ := lanyard(ctx, "check")
		Expect(out).To(ContainSubstring("× Lanyard is not installed"))
		// The guard still denies pods, so check must name it.
		Expect(out).To(MatchRegexp(`× the guard of a removed installation still denies pods: ValidatingAdmissionPolicyBindings .*lanyard-guard-pods`))
		Expect(out).To(ContainSubstring("validatingadmissionpolicybinding/lanyard-guard-pods"))
		Expect(code).To(Equal(command.ExitFound))
		Eventually(ctx, func(ctx context.Context) string {
			code, out, _ = lanyard(ctx, "explain", "sa/cart", "--namespace", "shop")
			return out
		}).Should(ContainSubstring("  guard               guarded, but its policies are those of a removed installation\n\nnew pods: denied\n  the guard of a removed installation denies new pods\n  -> Remove it, or install Lanyard again: kubectl delete validatingadmissionpolicybinding/lanyard-guard-"))
		Expect(code).To(Equal(command.ExitFound))
		code, out, _ = lanyard(ctx, "status", "--namespace", "shop")
		Expect(out).To(ContainSubstring("× Lanyard is not installed, so no new pod gets credentials\n    To see what is missing or left over: lanyard check\n"))
		Expect(code).To(Equal(command.ExitFound))
	})

	It("judges both of two installations, and explain goes on", func(ctx SpecContext) {
		api := env.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
		second, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		second.ObjectMeta = metav1.ObjectMeta{Name: "second"}
		_, err = api.Create(ctx, second, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) error { return api.Delete(ctx, "second", metav1.DeleteOptions{}) })
		code, out, _ := lanyard(ctx, "check")
		Expect(out).To(ContainSubstring("× Lanyard is installed 2 times: MutatingWebhookConfigurations lanyard (replicas unknown), second (replicas unknown)"))
		Expect(out).To(ContainSubstring("Choose one to keep. To remove all but lanyard: kubectl delete mutatingwebhookconfiguration/second validatingwebhookconfiguration/second\n"))
		Expect(out).To(MatchRegexp(`(?s)\nguard of lanyard\n  √ .*\nguard of second\n  × ValidatingAdmissionPolicy second-guard-pods does not exist`))
		Expect(code).To(Equal(command.ExitFound))
		code, out, errOut := lanyard(ctx, "explain", "sa/cart", "--namespace", "shop")
		Expect(errOut).To(BeEmpty())
		Expect(out).To(ContainSubstring("new pods: injected"))
		Expect(code).To(Equal(command.ExitOK))
	})

})
