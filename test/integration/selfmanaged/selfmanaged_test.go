// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package selfmanaged_test

import (
	"context"
	"encoding/base64"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// journal collects log lines.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, prefix+args)
		GinkgoWriter.Println(args)
	}, funcr.Options{})
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

func eventuallyReady(replicas ...*replica) {
	GinkgoHelper()
	for _, r := range replicas {
		Eventually(r.ready).Should(Succeed())
	}
}

// eventuallyTrusted waits until each webhook trusts each replica.
func eventuallyTrusted(ctx context.Context, replicas ...*replica) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for webhook, bundle := range bundles(ctx) {
			for _, r := range replicas {
				g.Expect(verify(bundle, r.leaf())).To(Succeed(), webhook)
			}
		}
	}).Should(Succeed())
}

var _ = Describe("The self-managed certificate", func() {
	It("is one CA for all replicas that start at once, and each webhook trusts it", func(ctx SpecContext) {
		replicas := make([]*replica, 3)
		for i := range replicas {
			replicas[i] = start(GinkgoLogr)
		}
		eventuallyReady(replicas...)
		all := bundles(ctx)
		Expect(all).To(HaveLen(4))
		for webhook, bundle := range all {
			Expect(bundle).To(Equal(secret(ctx).Data["ca.crt"]), webhook)
			for _, r := range replicas {
				Expect(verify(bundle, r.leaf())).To(Succeed(), webhook)
			}
		}
		Expect(replicas[0].leaf().SerialNumber).NotTo(Equal(replicas[1].leaf().SerialNumber))
	})

	It("is not created again when Lanyard is uninstalled, but when it is installed again", func(ctx SpecContext) {
		var log journal
		replicas := []*replica{start(log.logger()), start(log.logger())}
		eventuallyReady(replicas...)
		By("deleting what helm uninstall deletes, in its order, while the replicas still have their permissions")
		remove(ctx)
		Eventually(func() int { return strings.Count(log.String(), "CA Secret and webhook configurations not found") }).
			Should(BeNumerically(">=", len(replicas)))
		_, err := cluster.client.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
		Expect(err).To(MatchError(apierrors.IsNotFound, "not found"))
		eventuallyReady(replicas...)

		apply(ctx, "50-mutatingwebhookconfiguration")
		apply(ctx, "60-validatingwebhookconfiguration")
		eventuallyTrusted(ctx, replicas...)
		Expect(secret(ctx).Data).To(HaveKey("tls.key"))
	})

	It("has a Secret of the same Helm release as the configurations, also when it is created again", func(ctx SpecContext) {
		ofHelm := `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"},"annotations":{"meta.helm.sh/release-name":"blue","meta.helm.sh/release-namespace":"security"}}}`
		_, err := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, configuration, types.MergePatchType, []byte(ofHelm), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		eventuallyReady(start(GinkgoLogr))
		Expect(cluster.client.CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		Eventually(func(g Gomega) {
			s, err := cluster.client.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.Labels).To(Equal(map[string]string{"app.kubernetes.io/managed-by": "Helm"}))
			g.Expect(s.Annotations).To(Equal(map[string]string{"meta.helm.sh/release-name": "blue", "meta.helm.sh/release-namespace": "security"}))
		}).Should(Succeed())
	})

	It("is trusted again after somebody else wrote the caBundle", func(ctx SpecContext) {
		r := start(GinkgoLogr)
		eventuallyReady(r)
		want := bundles(ctx)
		_, _, stranger, err := controlplane.NewServingCertificate(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		foreign := base64.StdEncoding.EncodeToString(stranger)
		for _, patch := range []string{
			`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`,
			`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":"` + foreign + `"}]`,
		} {
			_, err := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, configuration, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Eventually(func() map[string][]byte { return bundles(ctx) }).Should(Equal(want))
			eventuallyReady(r)
		}
	})

	It("is trusted by a webhook configuration that comes back", func(ctx SpecContext) {
		r := start(GinkgoLogr)
		eventuallyReady(r)
		Expect(cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, configuration, metav1.DeleteOptions{})).To(Succeed())
		apply(ctx, "50-mutatingwebhookconfiguration")
		eventuallyTrusted(ctx, r)
	})

	It("is not ready where it may not write the caBundle, and no apiserver would trust it", func(ctx SpecContext) {
		role, err := cluster.client.RbacV1().ClusterRoles().Get(ctx, "lanyard-webhook-certificates", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		role.Rules[0].Verbs = []string{"get", "list", "watch"}
		_, err = cluster.client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() bool {
			return may(ctx, "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "lanyard")
		}).Should(BeFalse())
		var log journal
		r := start(log.logger())
		Eventually(r.leaf).ShouldNot(BeNil())
		// It has its certificate a moment before its watch returns its own CA.
		untrusted := MatchError(ContainSubstring(
			"webhook pods.lanyard.dev of MutatingWebhookConfiguration lanyard does not trust the serving certificate"))
		Eventually(r.ready).Should(untrusted)
		Expect(log.String()).To(ContainSubstring("write caBundle into MutatingWebhookConfiguration lanyard"))
		apply(ctx, "22-certificates-rbac")
		eventuallyReady(r)
	})

	It("is not ready where it may not read the configurations", func(ctx SpecContext) {
		Expect(cluster.client.RbacV1().ClusterRoleBindings().Delete(ctx, "lanyard-webhook-certificates", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() bool {
			return may(ctx, "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "lanyard")
		}).Should(BeFalse())
		before := cluster.refused.Load()
		r := start(GinkgoLogr)
		Eventually(cluster.refused.Load).Should(BeNumerically(">", before))
		Expect(r.ready()).To(MatchError(ContainSubstring("no serving certificate yet")))
		apply(ctx, "22-certificates-rbac")
		eventuallyReady(r)
	})

	It("comes with the right to its own objects, and to no others", func(ctx SpecContext) {
		const group = "admissionregistration.k8s.io"
		Eventually(func() bool { return may(ctx, "patch", group, "mutatingwebhookconfigurations", "", "lanyard") }).Should(BeTrue())
		for _, allowed := range []bool{
			may(ctx, "update", "", "secrets", namespace, secretName),
			may(ctx, "create", "", "secrets", namespace, secretName),
			may(ctx, "patch", group, "validatingwebhookconfigurations", "", "lanyard"),
		} {
			Expect(allowed).To(BeTrue())
		}
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
			Expect(may(ctx, verb, "", "secrets", namespace, "another")).To(BeFalse(), verb)
			Expect(may(ctx, verb, "", "secrets", namespace, "")).To(BeFalse(), verb)
			Expect(may(ctx, verb, "", "secrets", "default", secretName)).To(BeFalse(), verb)
			Expect(may(ctx, verb, group, "mutatingwebhookconfigurations", "", "another")).To(BeFalse(), verb)
			for _, policy := range []string{"lanyard-guard-pods", "lanyard-guard-injected"} {
				Expect(may(ctx, verb, group, "validatingadmissionpolicies", "", policy)).To(BeFalse(), verb)
				Expect(may(ctx, verb, group, "validatingadmissionpolicybindings", "", policy)).To(BeFalse(), verb)
			}
		}
		for _, verb := range []string{"create", "update", "delete", "deletecollection"} {
			Expect(may(ctx, verb, group, "mutatingwebhookconfigurations", "", "lanyard")).To(BeFalse(), verb)
			Expect(may(ctx, verb, group, "validatingwebhookconfigurations", "", "lanyard")).To(BeFalse(), verb)
		}
		Expect(may(ctx, "delete", "", "secrets", namespace, secretName)).To(BeFalse())
	})
})

// may asks the API server whether the webhook has a right.
func may(ctx context.Context, verb, group, resource, namespace, name string) bool {
	GinkgoHelper()
	review, err := cluster.rights.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name,
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return review.Status.Allowed
}
