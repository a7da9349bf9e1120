// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// The identities in trust.yaml.
const (
	role         = "arn:aws:iam::123456789012:role/reader"
	audit        = "arn:aws:iam::123456789012:role/audit"
	backup       = "arn:aws:iam::123456789012:role/backup"
	application  = "55556666-cccc-7777-dddd-8888eeee9999@aaaabbbb-0000-cccc-1111-dddd2222eeee"
	principals   = "principal://iam.googleapis.com/projects/123456789/locations/global/workloadIdentityPools/example-pool/subject/system:serviceaccount:"
	impersonated = "reporter@example-project.iam.gserviceaccount.com"
)

// threeClouds returns what the ServiceAccount three-clouds must get.
func threeClouds() expect.Outcomes {
	return expect.Outcomes{
		framework.AWS: expect.Granted(role), framework.Azure: expect.Granted(application), framework.GCP: expect.Granted(impersonated),
	}
}

// nothing returns what a pod without credentials gets.
func nothing() expect.Outcomes {
	return expect.Outcomes{framework.AWS: expect.None(), framework.Azure: expect.None(), framework.GCP: expect.None()}
}

// create creates a pod that is redirected to the emulators.
func create(ctx context.Context, namespace string, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	checker.Clouds.Redirect(&pod.Spec)
	created, err := cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return cluster.CoreV1().Pods(created.Namespace).Delete(ctx, created.Name, metav1.DeleteOptions{})
	})
	return created
}

// inEachLanguage runs a pod of the ServiceAccount in each language, with these
// variables, and checks it.
func inEachLanguage(ctx context.Context, name, account string, want expect.Outcomes, variables ...corev1.EnvVar) {
	GinkgoHelper()
	pods := map[string]*corev1.Pod{}
	for _, language := range framework.Languages() {
		checker.Begin(name, language, want)
		pod := framework.SDKPod(account, language, want.Clouds()...)
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, variables...)
		pods[language] = create(ctx, namespace, pod)
	}
	expect.All(framework.Languages(), func(language string) {
		By("checking the credentials of " + language)
		checker.Check(ctx, name, language, pods[language], framework.SDKContainer, want)
	})
}
