// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/peers"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

var _ = Describe("Lanyard and a peer that the API server calls after Lanyard, and again", policies, Ordered, func() {
	var namespace string
	create := func(ctx context.Context, account string, values map[string]string) (*corev1.Pod, error) {
		pod := newPod("pod", account, 1)
		pod.Annotations, pod.Labels = values, map[string]string{"azure.workload.identity/use": "true"}
		return cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, dryRun)
	}
	BeforeAll(func(ctx SpecContext) {
		// The registration and the guard of the suite leave this namespace out.
		namespace = labelledNamespace(ctx, map[string]string{"lanyard.dev/inject": "disabled"})
		google := map[string]string{
			"cloud.google.com/workload-identity-provider": pool,
			"cloud.google.com/service-account-email":      "my-app@my-project-123.iam.gserviceaccount.com",
			"lanyard.dev/gcp-workload-identity-provider":  pool,
			"lanyard.dev/gcp-service-account":             "my-app@my-project-123.iam.gserviceaccount.com",
		}
		labelledAccount(ctx, namespace, "google", google)
		azure := map[string]string{"lanyard.dev/azure-client-id": clientID, "lanyard.dev/azure-tenant-id": tenantID}
		labelledAccount(ctx, namespace, "azure", azure)
		guardBeside(ctx, namespace)
		Eventually(ctx, func(ctx context.Context) error {
			_, err := create(ctx, "google", nil)
			return err
		}).Within(startTimeout).Should(MatchError(ContainSubstring("beside-guard")))
		process, err := webhook.Start(ctx, webhook.Options{
			Binary: cluster.binary, Kubeconfig: cluster.kubeconfig, Dir: GinkgoT().TempDir(), Args: []string{"--adopt=azure,gcp"},
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(process.Stop)
		own, err := webhook.ReadMutating(deployDir)
		Expect(err).NotTo(HaveOccurred())
		pods := own.Webhooks[0]
		url := process.URL + *pods.ClientConfig.Service.Path
		registerBeside(ctx, "beside-lanyard", namespace, pods, url, process.CA)
		peer := &peers.GCP{ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy}
		url, ca := servePeer(ctx, peer)
		registerBeside(ctx, "beside-peer", namespace, peer.Registration().Webhooks[0], url, ca)
		Eventually(ctx, func(ctx context.Context) ([]corev1.Container, error) {
			pod, err := create(ctx, "google", nil)
			if err != nil {
				return nil, err
			}
			return pod.Spec.InitContainers, nil
		}).Within(startTimeout).Should(HaveLen(1))
	})

	It("leave the container that the peer writes to the peer, and the guard allows the pod", func(ctx SpecContext) {
		pod, err := create(ctx, "google", nil)
		Expect(err).NotTo(HaveOccurred())
		hasToken := func(c corev1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mountPath })
		}
		Expect(hasToken(pod.Spec.InitContainers[0])).To(BeFalse())
		Expect(hasToken(pod.Spec.Containers[0])).To(BeTrue())
	})

	It("leave a pod with an identity binding to the peer, and the guard allows the pod", func(ctx SpecContext) {
		for _, value := range []string{"true", "True"} {
			pod, err := create(ctx, "azure", map[string]string{"azure.workload.identity/use-identity-binding": value})
			Expect(err).NotTo(HaveOccurred())
			Expect(pod.Annotations).NotTo(HaveKey("lanyard.dev/injected"))
			Expect(pod.Spec.Containers[0].Env).To(BeEmpty())
		}
		pod, err := create(ctx, "azure", map[string]string{"azure.workload.identity/use-identity-binding": "false"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Annotations).To(HaveKeyWithValue("lanyard.dev/injected", "azure"))
	})
})

// registerBeside registers a webhook for the pods of one namespace.
func registerBeside(ctx SpecContext, name, namespace string, own admissionregistrationv1.MutatingWebhook, url string, ca []byte) {
	GinkgoHelper()
	own.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca}
	own.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
	api := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := api.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{own},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return api.Delete(ctx, name, metav1.DeleteOptions{}) })
}

// guardBeside creates the guard of the chart with adoption, for the pods of one namespace. A
// test of the chart compares the expressions in testdata.
func guardBeside(ctx SpecContext, namespace string) {
	GinkgoHelper()
	only := func(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: operator, Values: []string{namespace}}}}
	}
	policies := cluster.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := cluster.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	// The guard of the suite, which knows no adoption, checks injected pods in all namespaces.
	injected, err := policies.Get(ctx, "lanyard-guard-injected", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	everywhere := injected.Spec.MatchConstraints.NamespaceSelector
	injected.Spec.MatchConstraints.NamespaceSelector = only(metav1.LabelSelectorOpNotIn)
	injected, err = policies.Update(ctx, injected, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		injected.Spec.MatchConstraints.NamespaceSelector = everywhere
		_, err := policies.Update(ctx, injected, metav1.UpdateOptions{})
		return err
	})
	for _, name := range []string{"guard-pods", "guard-injected"} {
		expression, err := os.ReadFile(filepath.Join("testdata", "adoption-"+name+".cel"))
		Expect(err).NotTo(HaveOccurred())
		policy, err := policies.Get(ctx, "lanyard-"+name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		policy.ObjectMeta = metav1.ObjectMeta{Name: "beside-" + name}
		policy.Spec.MatchConstraints.NamespaceSelector = only(metav1.LabelSelectorOpIn)
		policy.Spec.MatchConditions[0].Expression = string(expression)
		_, err = policies.Create(ctx, policy, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) error { return policies.Delete(ctx, policy.Name, metav1.DeleteOptions{}) })
		binding, err := bindings.Get(ctx, "lanyard-"+name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		binding.ObjectMeta, binding.Spec.PolicyName = metav1.ObjectMeta{Name: policy.Name}, policy.Name
		_, err = bindings.Create(ctx, binding, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) error { return bindings.Delete(ctx, policy.Name, metav1.DeleteOptions{}) })
	}
}

// servePeer serves a peer for the rest of the container.
func servePeer(ctx SpecContext, peer peers.Peer) (url string, ca []byte) {
	GinkgoHelper()
	cert, key, ca, err := controlplane.NewServingCertificate(GinkgoT().TempDir(), "127.0.0.1")
	Expect(err).NotTo(HaveOccurred())
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	server := &http.Server{Handler: peers.NewHandler(peer, cluster.client), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.ServeTLS(listener, filepath.Clean(cert), filepath.Clean(key)) }()
	DeferCleanup(server.Close)
	return "https://" + listener.Addr().String() + "/", ca
}
