// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

var _ = Describe("A container that another webhook adds after Lanyard", func() {
	It("is completed in the second pass, and the others stay as they were", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		newAccount(ctx, namespace, "app", threeClouds())
		registerSidecarInjector(ctx, namespace)
		var pod *corev1.Pod
		Eventually(ctx, func() ([]corev1.Container, error) {
			var err error
			pod, err = cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("pod", "app", 1), dryRun)
			if err != nil {
				return nil, err
			}
			return pod.Spec.Containers, nil
		}).Within(startTimeout).Should(HaveLen(2))
		for _, c := range pod.Spec.Containers {
			expectThreeClouds(c.Env, c.VolumeMounts)
			Expect(c.VolumeMounts).To(HaveLen(2)) // the API server's own is the other
		}
		injected := 0
		for _, v := range pod.Spec.Volumes {
			if v.Name == "bound-sa-token" {
				injected++
			}
		}
		Expect(injected).To(Equal(1))
	})
})

// registerSidecarInjector serves a webhook that adds a container. Its configuration has
// a name that makes the API server call it after Lanyard.
func registerSidecarInjector(ctx SpecContext, namespace string) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	cert, key, ca, err := controlplane.NewServingCertificate(dir, "127.0.0.1")
	Expect(err).NotTo(HaveOccurred())
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	server := &http.Server{Handler: http.HandlerFunc(addSidecar), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.ServeTLS(listener, filepath.Clean(cert), filepath.Clean(key)) }()
	DeferCleanup(server.Close)

	url := fmt.Sprintf("https://%s/", listener.Addr())
	api := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err = api.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zz-sidecar"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "sidecar.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return api.Delete(ctx, "zz-sidecar", metav1.DeleteOptions{}) })
}

func addSidecar(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	jsonPatch := admissionv1.PatchTypeJSONPatch
	review.Response = &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Allowed: true, PatchType: &jsonPatch,
		Patch: []byte(`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"image"}}]`),
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}
