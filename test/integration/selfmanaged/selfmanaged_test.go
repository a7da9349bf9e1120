// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package selfmanaged_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// journal keeps what is logged.
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
		Eventually(r.ready).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Succeed())
	}
}

// lag is how far an apiserver may be behind another.
const lag = 3 * time.Second

// watchTrust looks, until it is stopped, whether each replica's certificate is
// one that an apiserver accepts that has the caBundles of this instant, and one
// that is behind. The function that it gives stops it, and gives
// the number of looks, of certificates and of CA bundles that it saw.
func watchTrust(ctx context.Context, replicas ...*replica) (stop func() (looks, leaves, cas int, err error)) {
	ctx, cancel := context.WithCancel(ctx)
	var looks int
	var errs []error
	leaves, cas := map[string]bool{}, map[string]bool{}
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		type seen struct {
			at      time.Time
			bundles map[string][]byte
		}
		behind := []seen{{time.Now(), bundles(context.WithoutCancel(ctx))}}
		for last := false; !last; {
			last = ctx.Err() != nil
			served := make([]*x509.Certificate, len(replicas))
			for i, r := range replicas {
				served[i] = r.leaf()
			}
			now := seen{time.Now(), bundles(context.WithoutCancel(ctx))}
			behind = append(behind, now)
			for len(behind) > 1 && now.at.Sub(behind[1].at) >= lag {
				behind = behind[1:]
			}
			for i, leaf := range served {
				leaves[fmt.Sprint(i, leaf.SerialNumber)] = true
				for webhook := range now.bundles {
					cas[string(now.bundles[webhook])] = true
					if err := errors.Join(verifyAt(now.at, behind[0].bundles[webhook], leaf), verifyAt(now.at, now.bundles[webhook], leaf)); err != nil {
						errs = append(errs, fmt.Errorf("replica %d, %s: %w", i, webhook, err))
					}
				}
			}
			looks++
		}
	}()
	return func() (int, int, int, error) {
		cancel()
		<-done
		return looks, len(leaves), len(cas), errors.Join(errs...)
	}
}

var _ = Describe("The self-managed certificate", func() {
	It("is one CA for all replicas that start at once, and each webhook trusts it", func(ctx SpecContext) {
		replicas := make([]*replica, 3)
		for i := range replicas {
			replicas[i] = start(GinkgoLogr, time.Hour, time.Minute)
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

	It("is renewed, and its CA with the same key, without ever being distrusted", func(ctx SpecContext) {
		replicas := []*replica{start(GinkgoLogr, 24*time.Second, 6*time.Second), start(GinkgoLogr, 24*time.Second, 6*time.Second)}
		eventuallyReady(replicas...)
		first := ca(secret(ctx))
		stop := watchTrust(ctx, replicas...)
		Eventually(func() int { // two renewals of the CA
			trusted, err := cert.ParseCertsPEM(bundles(ctx)["mutating pods.lanyard.dev"])
			Expect(err).NotTo(HaveOccurred())
			return int(trusted[0].NotAfter.Sub(first.NotAfter) / (14 * time.Second))
		}).WithTimeout(patience).Should(BeNumerically(">=", 2))
		looks, leaves, cas, err := stop()
		AddReportEntry(fmt.Sprintf("%d looks, %d serving certificates, %d CA bundles", looks, leaves, cas))
		Expect(err).NotTo(HaveOccurred())
		Expect(looks).To(BeNumerically(">", 100))
		Expect(leaves).To(BeNumerically(">=", 8))
		Expect(cas).To(BeNumerically(">=", 3))
		Expect(ca(secret(ctx)).PublicKey).To(Equal(first.PublicKey))
	})

	DescribeTable("is created again, and says so, without ever being distrusted, when its Secret",
		func(ctx SpecContext, damage func(context.Context), said string, sameKey bool) {
			var log journal
			replicas := []*replica{start(log.logger(), time.Hour, 8*time.Second), start(log.logger(), time.Hour, 8*time.Second)}
			eventuallyReady(replicas...)
			before := secret(ctx).Data["tls.crt"]
			first := ca(secret(ctx))
			stop := watchTrust(ctx, replicas...)
			damage(ctx)
			for _, r := range replicas {
				Eventually(func(g Gomega) {
					now, err := cluster.client.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(verify(now.Data["tls.crt"], r.leaf())).To(Succeed())
					g.Expect(now.Data["tls.crt"]).NotTo(Equal(before))
				}).WithTimeout(patience).Should(Succeed())
			}
			_, _, _, err := stop()
			Expect(err).NotTo(HaveOccurred())
			Expect(log.String()).To(ContainSubstring(said))
			Expect(log.String()).NotTo(ContainSubstring("s3cr3t"))
			Expect(bytes.Equal(ca(secret(ctx)).RawSubjectPublicKeyInfo, first.RawSubjectPublicKeyInfo)).To(Equal(sameKey))
			// What was trusted beside the new key goes when nobody can need it.
			Eventually(func() map[string][]byte { return bundles(ctx) }).WithTimeout(patience).Should(
				HaveEach(WithTransform(func(bundle []byte) int { return bytes.Count(bundle, []byte("BEGIN")) }, Equal(1))))
			eventuallyReady(replicas...)
		},
		Entry("is deleted", func(ctx context.Context) {
			Expect(cluster.client.CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		}, "CA Secret not found", false),
		Entry("loses its data", func(ctx context.Context) {
			patchSecret(ctx, `[{"op":"remove","path":"/data"}]`)
		}, "CA written", false),
		Entry("gets a key that is none", func(ctx context.Context) {
			patchSecret(ctx, `[{"op":"add","path":"/data/tls.key","value":"czNjcjN0"}]`)
		}, "failed to find any PEM data in key input", false),
		Entry("gets a certificate that is none", func(ctx context.Context) {
			patchSecret(ctx, `[{"op":"add","path":"/data/tls.crt","value":"czNjcjN0"}]`)
		}, "failed to find any PEM data in certificate input", true),
	)

	It("is not created again when Lanyard is uninstalled, but when it is installed again", func(ctx SpecContext) {
		var log journal
		replicas := []*replica{start(log.logger(), time.Hour, time.Minute), start(log.logger(), time.Hour, time.Minute)}
		eventuallyReady(replicas...)
		By("deleting what helm uninstall deletes, in its order, while the replicas still have their permissions")
		remove(ctx)
		Consistently(func() error {
			_, err := cluster.client.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
			return err
		}).WithTimeout(5 * time.Second).Should(MatchError(apierrors.IsNotFound, "not found"))
		Expect(log.String()).NotTo(ContainSubstring("creating it"))
		Expect(log.String()).To(ContainSubstring("CA Secret and webhook configurations not found"))
		eventuallyReady(replicas...)

		apply(ctx, "50-mutatingwebhookconfiguration")
		apply(ctx, "60-validatingwebhookconfiguration")
		Eventually(func(g Gomega) {
			for webhook, bundle := range bundles(ctx) {
				for _, r := range replicas {
					g.Expect(verify(bundle, r.leaf())).To(Succeed(), webhook)
				}
			}
			g.Expect(secret(ctx).Data).To(HaveKey("tls.key"))
		}).WithTimeout(patience).Should(Succeed())
	})

	It("has a Secret of the same Helm release as the configurations, also when it is created again", func(ctx SpecContext) {
		ofHelm := `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"},"annotations":{"meta.helm.sh/release-name":"blue","meta.helm.sh/release-namespace":"security"}}}`
		_, err := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, configuration, types.MergePatchType, []byte(ofHelm), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		eventuallyReady(start(GinkgoLogr, time.Hour, time.Minute))
		Expect(cluster.client.CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		Eventually(func(g Gomega) {
			s, err := cluster.client.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.Labels).To(Equal(map[string]string{"app.kubernetes.io/managed-by": "Helm"}))
			g.Expect(s.Annotations).To(Equal(map[string]string{"meta.helm.sh/release-name": "blue", "meta.helm.sh/release-namespace": "security"}))
		}).WithTimeout(patience).Should(Succeed())
	})

	It("is trusted again after somebody else wrote the caBundle", func(ctx SpecContext) {
		r := start(GinkgoLogr, time.Hour, time.Minute)
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
			Eventually(func() map[string][]byte { return bundles(ctx) }).WithTimeout(patience).Should(Equal(want))
			eventuallyReady(r)
		}
	})

	It("needs no webhook configuration to be ready, and is trusted by one that comes back", func(ctx SpecContext) {
		r := start(GinkgoLogr, time.Hour, time.Minute)
		eventuallyReady(r)
		Expect(cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, configuration, metav1.DeleteOptions{})).To(Succeed())
		Consistently(r.ready).WithTimeout(2 * time.Second).Should(Succeed())
		apply(ctx, "50-mutatingwebhookconfiguration")
		Eventually(func() map[string][]byte { return bundles(ctx) }).WithTimeout(patience).Should(
			HaveEach(WithTransform(func(bundle []byte) error { return verify(bundle, r.leaf()) }, Succeed())))
	})

	It("is not ready where it may not write the caBundle, and no apiserver would trust it", func(ctx SpecContext) {
		role, err := cluster.client.RbacV1().ClusterRoles().Get(ctx, "lanyard-webhook-certificates", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		role.Rules[0].Verbs = []string{"get", "list", "watch"}
		_, err = cluster.client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() bool {
			return may(ctx, "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "lanyard")
		}).WithTimeout(patience).Should(BeFalse())
		var log journal
		r := start(log.logger(), time.Hour, time.Minute)
		Eventually(r.leaf).WithTimeout(patience).ShouldNot(BeNil())
		// It has its certificate a little before it sees its own CA again.
		untrusted := MatchError(ContainSubstring(
			"webhook pods.lanyard.dev of MutatingWebhookConfiguration lanyard does not trust the serving certificate"))
		Eventually(r.ready).WithTimeout(patience).Should(untrusted)
		Consistently(r.ready).WithTimeout(time.Second).Should(untrusted)
		Expect(log.String()).To(ContainSubstring("write caBundle into MutatingWebhookConfiguration lanyard"))
		apply(ctx, "22-certificates-rbac")
		eventuallyReady(r)
	})

	It("is not ready where it may not read the configurations", func(ctx SpecContext) {
		var log journal
		Expect(cluster.client.RbacV1().ClusterRoleBindings().Delete(ctx, "lanyard-webhook-certificates", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() bool {
			return may(ctx, "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "lanyard")
		}).WithTimeout(patience).Should(BeFalse())
		r := start(log.logger(), time.Hour, time.Minute)
		Consistently(r.ready).WithTimeout(2 * time.Second).Should(MatchError(ContainSubstring("no serving certificate yet")))
		apply(ctx, "22-certificates-rbac")
		eventuallyReady(r)
	})

	It("comes with the right to its own objects, and to no others", func(ctx SpecContext) {
		const group = "admissionregistration.k8s.io"
		Eventually(func() bool { return may(ctx, "patch", group, "mutatingwebhookconfigurations", "", "lanyard") }).WithTimeout(patience).Should(BeTrue())
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

func patchSecret(ctx context.Context, patch string) {
	GinkgoHelper()
	_, err := cluster.client.CoreV1().Secrets(namespace).Patch(ctx, secretName, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// may asks the apiserver what the webhook is allowed.
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
