// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// Create creates a pod that is redirected to the emulators, until the end of the spec.
func (c *Checker) Create(ctx context.Context, namespace string, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	c.Clouds.Redirect(&pod.Spec)
	created, err := c.Cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return c.Cluster.CoreV1().Pods(created.Namespace).Delete(ctx, created.Name, metav1.DeleteOptions{})
	})
	return created
}

// InEachLanguage runs a pod of the ServiceAccount in each language, with these
// variables, and checks it.
func (c *Checker) InEachLanguage(ctx context.Context, namespace, name, account string, want Outcomes, variables ...corev1.EnvVar) {
	GinkgoHelper()
	pods := map[string]*corev1.Pod{}
	for _, language := range framework.Languages() {
		c.Begin(name, language, want)
		pod := framework.SDKPod(account, language, want.Clouds()...)
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, variables...)
		pods[language] = c.Create(ctx, namespace, pod)
	}
	All(framework.Languages(), func(language string) {
		By("checking the credentials of " + language)
		c.Check(ctx, name, language, pods[language], framework.SDKContainer, want)
	})
}

// Debugger is the name of the container that Debug adds.
const Debugger = "debugger"

// Debug adds an ephemeral container with the SDKs of all clouds to a pod, as a user does
// with kubectl debug and more arguments.
func (c *Checker) Debug(ctx context.Context, pod *corev1.Pod, more ...string) {
	GinkgoHelper()
	options, err := c.Clouds.DebugOptions()
	Expect(err).NotTo(HaveOccurred())
	custom := filepath.Join(GinkgoT().TempDir(), "custom.json")
	Expect(os.WriteFile(custom, options, 0o600)).To(Succeed())
	arguments := append([]string{"debug", pod.Name, "--namespace", pod.Namespace, "--profile", "restricted", "--custom", custom,
		"--image", framework.SDKGoImage, "--image-pull-policy", "Never", "--container", Debugger, "--arguments-only"}, more...)
	_, err = c.Cluster.Run(ctx, "kubectl", append(append(arguments, "--"), framework.AllClouds()...)...)
	Expect(err).NotTo(HaveOccurred())
}
