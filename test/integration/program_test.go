// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"syscall"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// review asks the webhook about a pod, as the API server would.
func review(ctx context.Context, process *webhook.Process, namespace string, pod []byte) *admissionv1.AdmissionResponse {
	GinkgoHelper()
	status, text := post(ctx, process, namespace, pod)
	Expect(status).To(Equal(http.StatusOK), text)
	var answer admissionv1.AdmissionReview
	Expect(json.Unmarshal([]byte(text), &answer)).To(Succeed())
	Expect(answer.Response.UID).To(BeEquivalentTo("b1946ac9-2492-4d23-a6b2-6f9d7c5f0a11"))
	return answer.Response
}

// post sends the review of a pod, and returns the response.
func post(ctx context.Context, process *webhook.Process, namespace string, pod []byte) (status int, text string) {
	GinkgoHelper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "b1946ac9-2492-4d23-a6b2-6f9d7c5f0a11",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: namespace, Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: pod},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, process.URL+"/mutate-v1-pod?timeout=30s", bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	response, err := process.Client().Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(read)
}

// launch starts another webhook beside the registered one.
func launch(ctx context.Context, options webhook.Options) *webhook.Process {
	GinkgoHelper()
	options.Binary, options.Dir = cluster.binary, GinkgoT().TempDir()
	process, err := webhook.Launch(ctx, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(process.Stop)
	return process
}

var _ = Describe("The program, asked directly", func() {
	DescribeTable("answers one patch that injects three clouds", func(ctx SpecContext, n int) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		pod, err := json.Marshal(newPod("pod", "app", n))
		Expect(err).NotTo(HaveOccurred())
		answer := review(ctx, cluster.webhook, namespace, pod)
		Expect(answer.Allowed).To(BeTrue())
		Expect(answer.AuditAnnotations).To(HaveKeyWithValue("reason", "injected"))
		patch, err := jsonpatch.DecodePatch(answer.Patch)
		Expect(err).NotTo(HaveOccurred())
		patched, err := patch.Apply(pod)
		Expect(err).NotTo(HaveOccurred())
		var result corev1.Pod
		Expect(json.Unmarshal(patched, &result)).To(Succeed())
		Expect(result.Spec.Containers).To(HaveLen(n))
		for _, c := range result.Spec.Containers {
			expectThreeClouds(c.Env, c.VolumeMounts)
		}
	},
		Entry("on a pod of 2 containers", 2),
		Entry("on a pod of 20 containers", 20),
	)

	It("keeps the fields that its Kubernetes version does not know", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		pod := []byte(`{"apiVersion":"v1","kind":"Pod","future":1,"metadata":{"name":"pod","future":[2]},"spec":{"future":{"a":null},"serviceAccountName":"app",` +
			`"volumes":[{"name":"v","futureSource":{"x":1e3}}],"containers":[{"name":"main","future":"3","env":[{"name":"A","futureValue":4}],"volumeMounts":[{"name":"v","mountPath":"/v","future":5}]}]}}`)
		answer := review(ctx, cluster.webhook, namespace, pod)
		patch, err := jsonpatch.DecodePatch(answer.Patch)
		Expect(err).NotTo(HaveOccurred())
		patched, err := patch.Apply(pod)
		Expect(err).NotTo(HaveOccurred())
		for _, kept := range []string{`"future":1`, `"future":[2]`, `"future":{"a":null}`, `"futureSource":{"x":1e3}`, `"future":"3"`, `"futureValue":4`, `"future":5`} {
			Expect(string(patched)).To(ContainSubstring(kept))
		}
		Expect(string(patched)).To(ContainSubstring("AWS_ROLE_ARN"))
	})

	It("accepts nothing older than TLS 1.3", func(ctx SpecContext) {
		client := cluster.webhook.Client()
		client.Transport.(*http.Transport).TLSClientConfig.MinVersion = tls.VersionTLS12
		client.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS12
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, cluster.webhook.URL, nil)
		Expect(err).NotTo(HaveOccurred())
		_, err = client.Do(request)
		Expect(err).To(MatchError(ContainSubstring("protocol version")))
	})

	It("logs no environment values", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		pod := newPod("logged-pod", "app", 1)
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_SECRET_ACCESS_KEY", Value: "s3cr3t-value"}}
		createPod(ctx, namespace, pod)
		log, err := os.ReadFile(cluster.webhook.LogFile)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(log)).To(ContainSubstring("logged-pod"))
		Expect(string(log)).To(ContainSubstring("environment_shadowed"))
		Expect(string(log)).NotTo(ContainSubstring("s3cr3t-value"))
		Expect(string(log)).NotTo(ContainSubstring("external_account"))
	})

	It("serves the metrics of the design, with no label that users fill", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		createPod(ctx, namespace, newPod("pod", "app", 1))
		text := get(ctx, cluster.webhook.MetricsURL)
		for _, name := range []string{
			`lanyard_admissions_total{reason="injected",resource="pods",result="allowed"}`, `lanyard_injections_total{provider="azure"}`,
			`lanyard_admission_duration_seconds_count`, `lanyard_serviceaccount_lookups_total{result="found",source="cache"}`,
			`lanyard_serviceaccounts{state="annotated"}`, `lanyard_serviceaccounts{state="unannotated"}`, `lanyard_serviceaccounts{state="unguarded"}`, `lanyard_serviceaccounts{state="excluded"}`,
			`lanyard_certificate_expiry_timestamp_seconds`, `lanyard_build_info`,
		} {
			Expect(text).To(ContainSubstring(name))
		}
		for _, series := range regexp.MustCompile(`(?m)^lanyard_.*$`).FindAllString(text, -1) {
			Expect(series).NotTo(ContainSubstring(namespace))
		}
	})
})

var _ = Describe("The program, by its permissions", func() {
	It("may read ServiceAccounts and namespaces, and nothing else", func(ctx SpecContext) {
		client := webhookClient()
		_, err := client.CoreV1().ServiceAccounts("").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		role, err := cluster.client.RbacV1().ClusterRoles().Get(ctx, "lanyard-webhook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, rule := range role.Rules {
			Expect(rule.Verbs).To(ConsistOf("get", "list", "watch"))
			Expect(rule.APIGroups).To(Equal([]string{""}))
			Expect(rule.Resources).To(HaveEach(BeElementOf("serviceaccounts", "namespaces")))
			Expect(rule.NonResourceURLs).To(BeEmpty())
		}
		_, err = client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
		_, err = client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
	})
})

var _ = Describe("The program, by its configuration", func() {
	It("is registered with no side effects, and for what it understands alone", func(ctx SpecContext) {
		api := cluster.client.AdmissionregistrationV1()
		mutating, err := api.MutatingWebhookConfigurations().Get(ctx, "lanyard", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, w := range mutating.Webhooks {
			Expect(w.SideEffects).To(HaveValue(Equal(admissionregistrationv1.SideEffectClassNone)), w.Name)
			Expect(w.AdmissionReviewVersions).To(Equal([]string{"v1"}), w.Name)
		}
		validating, err := api.ValidatingWebhookConfigurations().Get(ctx, "lanyard", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, w := range validating.Webhooks {
			Expect(w.SideEffects).To(HaveValue(Equal(admissionregistrationv1.SideEffectClassNone)), w.Name)
			Expect(w.AdmissionReviewVersions).To(Equal([]string{"v1"}), w.Name)
		}
	})
})

// webhookClient returns a client with the rights of the webhook's ServiceAccount.
func webhookClient() kubernetes.Interface {
	GinkgoHelper()
	config, err := cluster.plane.User("system:serviceaccount:lanyard-system:lanyard-webhook", "system:serviceaccounts")
	Expect(err).NotTo(HaveOccurred())
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

var _ = Describe("The program, when it cannot read ServiceAccounts", func() {
	It("is alive but not ready, and answers with a fault, so that the API server decides", func(ctx SpecContext) {
		config, err := cluster.plane.User("somebody", "system:authenticated")
		Expect(err).NotTo(HaveOccurred())
		process := launch(ctx, webhook.Options{Kubeconfig: writeKubeconfig(config)})
		Expect(controlplane.WaitReady(ctx, process.HealthURL+"/healthz")).To(Succeed())
		Eventually(ctx, func() string { _, body := fetch(ctx, process.HealthURL+"/readyz?verbose"); return body }).
			Within(startTimeout).Should(ContainSubstring("[+]tls ok"))
		Eventually(ctx, func() (string, error) { log, err := os.ReadFile(process.LogFile); return string(log), err }).
			Within(startTimeout).Should(ContainSubstring("forbidden"))
		status, body := fetch(ctx, process.HealthURL+"/readyz")
		Expect(status).To(Equal(http.StatusInternalServerError), body)
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		pod, err := json.Marshal(newPod("pod", "app", 1))
		Expect(err).NotTo(HaveOccurred())
		status, answer := post(ctx, process, namespace, pod)
		Expect(status).To(Equal(http.StatusServiceUnavailable), answer)
		Expect(answer).To(ContainSubstring("lanyard: lookup_failed: "))

		By("registering it with failurePolicy Fail, then Ignore")
		newAccount(ctx, namespace, "plain", nil)
		mutating := registerFor(ctx, process, namespace, admissionregistrationv1.Fail)
		create := func(account string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("pod", account, 1), dryRun)
				return err
			}
		}
		Eventually(ctx, create("plain")).Within(startTimeout).Should(MatchError(SatisfyAll(
			ContainSubstring(`failed calling webhook "pods.lanyard.dev"`), ContainSubstring("lanyard: lookup_failed: read serviceaccount"))))
		mutating.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
		_, err = cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, mutating, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, create("plain")).Within(startTimeout).Should(Succeed())
	})
})

// registerFor registers another webhook for the pods of one namespace, next to the
// one that all specs share.
func registerFor(ctx context.Context, process *webhook.Process, namespace string, policy admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.MutatingWebhookConfiguration {
	GinkgoHelper()
	api := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	shared, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	other := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "lanyard-" + namespace}, Webhooks: shared.Webhooks[:1],
	}
	url := process.URL + "/mutate-v1-pod"
	other.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: process.CA}
	other.Webhooks[0].FailurePolicy = &policy
	other.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
	other, err = api.Create(ctx, other, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return api.Delete(ctx, other.Name, metav1.DeleteOptions{}) })
	return other
}

func writeKubeconfig(config *rest.Config) string {
	GinkgoHelper()
	file := GinkgoT().TempDir() + "/kubeconfig"
	Expect(controlplane.WriteKubeconfig(file, config)).To(Succeed())
	return file
}

var _ = Describe("The program, at SIGTERM", func() {
	It("is not ready, serves on for the delay, and ends well", func(ctx SpecContext) {
		process := launch(ctx, webhook.Options{Kubeconfig: cluster.kubeconfig, Args: []string{"--shutdown-delay", "1h"}})
		Expect(controlplane.WaitReady(ctx, process.HealthURL+"/readyz")).To(Succeed())
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		pod, err := json.Marshal(newPod("pod", "app", 1))
		Expect(err).NotTo(HaveOccurred())

		Expect(process.Signal(syscall.SIGTERM)).To(Succeed())
		Eventually(ctx, func() int { status, _ := fetch(ctx, process.HealthURL+"/readyz"); return status }).
			Within(startTimeout).Should(Equal(http.StatusInternalServerError))
		for range 10 {
			Expect(review(ctx, process, namespace, pod).Patch).NotTo(BeNil())
		}
		// A second signal ends the delay.
		Expect(process.Done()).NotTo(BeClosed())
		Expect(process.Signal(syscall.SIGTERM)).To(Succeed())
		Eventually(ctx, process.Done()).Within(startTimeout).Should(BeClosed())
		Expect(process.Stop()).To(Succeed(), "it ended with an error")
	})
})
