// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

// The texts are the webhook's. test/policies compares more of them.
const (
	malformed = `lanyard: invalid_annotation: serviceaccount "identity/malformed": metadata.annotations[lanyard.dev/aws-role-arn]: Invalid value: ` +
		`"arn:aws:iam::11112222333:role/app": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`
	notAllowed = `lanyard: identity_not_allowed: serviceaccount "identity-limited/aws" asks for the identity "` + identities.Role +
		`", but annotation lanyard.dev/allowed-identities of its namespace allows only ["arn:aws:iam::123456789012:role/other-*"]`
)

func denials() {
	It("deny malformed annotations when they are written", func(ctx SpecContext) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: "malformed", Annotations: map[string]string{"lanyard.dev/aws-role-arn": "arn:aws:iam::11112222333:role/app"},
		}}
		_, err := cluster.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring(malformed)))
	})

	It("inject the pods of a ServiceAccount that is older than the policies as soon as it is written", func(ctx SpecContext) {
		const older = "gcp-impersonated"
		pod := framework.SDKPod(older, framework.Go, journal.GCP)
		created, err := podstream.Create(ctx, cluster, namespace, pod)
		Expect(err).NotTo(HaveOccurred())
		expect.Untouched(&pod.Spec, created)
		// The policies remove the label from ServiceAccounts without an identity.
		_, err = cluster.Run(ctx, "kubectl", "label", "serviceaccounts", "--namespace", namespace, "--selector", "!lanyard.dev/identity", "lanyard.dev/identity=enabled")
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.WaitInjected(ctx, namespace, older)).To(Succeed())
		none, err := cluster.CoreV1().ServiceAccounts(namespace).Get(ctx, "none", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(none.Labels).NotTo(HaveKey("lanyard.dev/identity"))
	})

	It("inject the pods of a namespace that opts in again", func(ctx SpecContext) {
		const optedOut = "identity-opted-out"
		accounts, err := someAccounts("aws")
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.SetUp(ctx, checker.Clouds, optedOut, map[string]string{"lanyard.dev/inject": "disabled"}, accounts)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, optedOut) })
		pod := framework.SDKPod("aws", framework.Go, journal.AWS)
		created, err := podstream.Create(ctx, cluster, optedOut, pod)
		Expect(err).NotTo(HaveOccurred())
		expect.Untouched(&pod.Spec, created)
		_, err = cluster.Run(ctx, "kubectl", "label", "namespace", optedOut, "lanyard.dev/inject-")
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.WaitInjected(ctx, optedOut, "aws")).To(Succeed())
	})

	It("deny identities that the namespace does not allow, and no others", func(ctx SpecContext) {
		const limited = "identity-limited"
		accounts, err := someAccounts("aws", "gcp-impersonated")
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.SetUp(ctx, checker.Clouds, limited, nil, accounts)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, limited) })
		Expect(cluster.WaitInjected(ctx, limited, "aws")).To(Succeed())
		_, err = cluster.Run(ctx, "kubectl", "annotate", "namespace", limited, "lanyard.dev/allowed-identities=arn:aws:iam::123456789012:role/other-*")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, dryRun).WithArguments(limited, "aws").Should(MatchError(ContainSubstring(notAllowed)))
		_, err = cluster.CoreV1().ServiceAccounts(limited).Patch(ctx, "aws", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"lanyard.dev/aws-region":"eu-west-1"}}}`), metav1.PatchOptions{})
		Expect(err).To(MatchError(ContainSubstring(notAllowed)))
		_, err = cluster.Run(ctx, "kubectl", "annotate", "--overwrite", "namespace", limited,
			"lanyard.dev/allowed-identities=arn:aws:iam::123456789012:role/other-*, "+identities.Role)
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.WaitInjected(ctx, limited, "aws")).To(Succeed())
		Expect(dryRun(ctx, limited, "gcp-impersonated")).To(MatchError(ContainSubstring("identity_not_allowed")))
	})
}

// dryRun tries to create a pod of the ServiceAccount.
func dryRun(ctx context.Context, namespace, account string) error {
	_, err := podstream.Create(ctx, cluster, namespace, framework.SDKPod(account, framework.Go, journal.AWS))
	return err
}
