// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// The directories of the tokens.
const (
	eksPath   = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
	azurePath = "/var/run/secrets/azure/tokens"
	ownPath   = "/var/run/secrets/lanyard.dev/serviceaccount"
)

// The containers of each pod. All but the first are init containers, so that they run one
// after the other: the kubelet rewrites /etc/hosts for each container, and a container
// that reads it at the same time may find it empty.
const (
	// injected uses the injected credentials.
	injected = framework.SDKContainer
	// oldPaths sets variables to the other webhooks' paths.
	oldPaths = "old-paths"
	// newPaths names Lanyard's.
	newPaths = "new-paths"
	// othersOnly is skipped by Lanyard.
	othersOnly = "others-only"
)

// workload is a pod of one of the ServiceAccounts.
type workload struct {
	namespace, account string
	clouds             []string
	// other is a volume or container that another webhook adds before Lanyard, or "".
	other string
}

func workloads() []workload {
	return []workload{
		{namespace, "eks", []string{journal.AWS}, ""},
		{namespace, "azure", []string{journal.Azure}, "azure-workload-identity-reserved-"},
		{older, "azure", []string{journal.Azure}, "azure-identity-token"},
		{namespace, "gcp", []string{journal.GCP}, "gcloud-setup"},
		{namespace, "gcp-direct", []string{journal.GCP}, "external-credential-config"},
		{namespace, "all", framework.AllClouds(), "gcloud-setup"},
		{older, "all", framework.AllClouds(), "gcloud-setup"},
	}
}

func (w *workload) outcomes() expect.Outcomes {
	identities := map[string]string{journal.AWS: role, journal.Azure: client, journal.GCP: email}
	outcomes := expect.Outcomes{}
	for _, cloud := range w.clouds {
		outcomes[cloud] = expect.Granted(identities[cloud])
	}
	return outcomes
}

// oldVariables are variables that programs set themselves.
func oldVariables() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "AWS_ROLE_ARN", Value: role}, {Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: eksPath + "/token"},
		{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: azurePath + "/azure-identity-token"},
		{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: "/etc/google/credentials.json"},
	}
}

// newVariables are those with Lanyard's paths.
func newVariables() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "AWS_ROLE_ARN", Value: role}, {Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: ownPath + "/aws/token"},
		{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: ownPath + "/azure/token"},
		{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: ownPath + "/gcp/credentials.json"},
	}
}

// pod returns a pod with these containers. The webhook for GCP replaces a container's
// GOOGLE_APPLICATION_CREDENTIALS, so it must skip newPaths.
func (w *workload) pod(containers ...string) *corev1.Pod {
	pod := framework.SDKPod(w.account, framework.Go, w.clouds...)
	pod.Labels = map[string]string{"azure.workload.identity/use": "true"}
	pod.Annotations = map[string]string{"cloud.google.com/skip-containers": newPaths, "lanyard.dev/skip-containers": othersOnly}
	// Set a group for the tokens that are not readable by everyone, and what restricted
	// requires of the container that the webhook for GCP adds.
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		FSGroup: new(int64(65532)), RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for _, name := range containers {
		c := framework.SDK(framework.Go, w.clouds...)
		c.Name = name
		switch name {
		case injected:
			continue
		case oldPaths:
			c.Env = oldVariables()
			c.VolumeMounts = []corev1.VolumeMount{{Name: "credentials", MountPath: "/etc/google", ReadOnly: true}}
		case newPaths:
			c.Env = newVariables()
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "credentials", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "credentials"}},
	}}}
	checker.Clouds.Redirect(&pod.Spec)
	return pod
}

// addCredentials adds the credential file that old-paths uses.
func addCredentials(ctx context.Context, namespace string) error {
	_, err := cluster.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "credentials"}, Data: map[string]string{"credentials.json": credentials},
	}, metav1.CreateOptions{})
	return err
}

// has reports whether the pod has a volume or an init container whose name starts so.
func has(pod *corev1.Pod, start string) bool {
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, start) {
			return true
		}
	}
	for i := range pod.Spec.InitContainers {
		if strings.HasPrefix(pod.Spec.InitContainers[i].Name, start) {
			return true
		}
	}
	return false
}

// waitOthers waits until the API server calls the other webhooks, or does not.
func waitOthers(ctx context.Context, called bool) {
	GinkgoHelper()
	probe := workload{namespace, "all", framework.AllClouds(), ""}
	Eventually(func(g Gomega) {
		pod, err := cluster.CoreV1().Pods(namespace).Create(ctx, probe.pod(othersOnly), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		g.Expect(err).NotTo(HaveOccurred())
		last := pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
		for _, name := range []string{"AWS_ROLE_ARN", "AZURE_CLIENT_ID", "GOOGLE_APPLICATION_CREDENTIALS"} {
			if called {
				g.Expect(last.Env).To(ContainElement(HaveField("Name", name)))
			} else {
				g.Expect(last.Env).NotTo(ContainElement(HaveField("Name", name)))
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// getCredentials creates the pods, and checks the credentials of each container.
func getCredentials(ctx context.Context, title string, containers []string, list []workload) []*corev1.Pod {
	GinkgoHelper()
	name := func(w *workload, container string) string {
		return title + ": " + w.namespace + "/" + w.account + ", " + container
	}
	var pods []*corev1.Pod
	for i := range list {
		w := &list[i]
		for _, container := range containers {
			checker.Begin(name(w, container), framework.Go, w.outcomes())
		}
		pod, err := cluster.CoreV1().Pods(w.namespace).Create(ctx, w.pod(containers...), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred(), "the pod of %s/%s", w.namespace, w.account)
		DeferCleanup(func(ctx SpecContext) error {
			return cluster.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		})
		pods = append(pods, pod)
	}
	indices := make([]int, len(list))
	for i := range indices {
		indices[i] = i
	}
	expect.All(indices, func(i int) {
		for _, container := range containers {
			By("checking " + name(&list[i], container))
			checker.Check(ctx, name(&list[i], container), framework.Go, pods[i], container, list[i].outcomes())
		}
	})
	return pods
}

var _ = Describe("A cluster that moves to Lanyard", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { setUp(ctx) })

	It("gives pods credentials while the other webhooks run", func(ctx SpecContext) {
		Expect(others.register(ctx)).To(Succeed())
		waitOthers(ctx, true)
		all := workloads()
		pods := getCredentials(ctx, "beside", []string{oldPaths, newPaths, othersOnly, injected}, all)
		for i, pod := range pods {
			Expect(has(pod, all[i].other)).To(BeTrue(), "pod %s: %s", pod.Name, all[i].other)
		}
	})

	It("gives new pods credentials after their MutatingWebhookConfigurations are deleted", func(ctx SpecContext) {
		Expect(others.unregister(ctx)).To(Succeed())
		waitOthers(ctx, false)
		pods := getCredentials(ctx, "after", []string{oldPaths, newPaths, injected}, workloads())
		for _, pod := range pods {
			Expect(has(pod, "gcloud-setup")).To(BeFalse(), pod.Name)
		}
	})

	It("gives pods with an identity of GKE credentials", func(ctx SpecContext) {
		getCredentials(ctx, "after", []string{newPaths, injected}, []workload{{namespace, "gke", []string{journal.GCP}, ""}})
	})
})
