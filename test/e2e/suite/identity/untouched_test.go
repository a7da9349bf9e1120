// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

var _ = Describe("Lanyard does not change", func() {
	It("a pod that opts out", func(ctx SpecContext) {
		const name = "pod opted out"
		checker.Begin(name, framework.Go, identities.Nothing())
		pod := framework.SDKPod("three-clouds", framework.Go, framework.AllClouds()...)
		pod.Annotations = map[string]string{"lanyard.dev/inject": "false"}
		created := checker.Create(ctx, namespace, pod)
		expect.Untouched(&pod.Spec, created)
		checker.Check(ctx, name, framework.Go, created, framework.SDKContainer, identities.Nothing())
	})

	It("a skipped container, but all others", func(ctx SpecContext) {
		const name = "container skipped"
		checker.Begin(name, framework.Go, identities.Nothing())
		pod := framework.SDKPod("three-clouds", framework.Go, framework.AllClouds()...)
		pod.Annotations = map[string]string{"lanyard.dev/skip-containers": "skipped"}
		pod.Spec.Containers = append(pod.Spec.Containers, named("skipped", *pod.Spec.Containers[0].DeepCopy()))
		pod = checker.Create(ctx, namespace, pod)
		checker.Check(ctx, name, framework.Go, pod, framework.SDKContainer, identities.ThreeClouds())
		for _, result := range checker.Reports(ctx, pod, "skipped", len(framework.AllClouds())) {
			Expect(result.Credential).To(BeEmpty(), result.Cloud)
			Expect(result.Error).NotTo(BeEmpty(), result.Cloud)
			checker.Table.Set(name, framework.Go, result.Cloud, "none")
		}
	})

	It("the pods of a namespace that opts out", func(ctx SpecContext) {
		const name, optedOut = "namespace opted out", "identity-opted-out"
		checker.Begin(name, framework.Go, identities.Nothing())
		Expect(cluster.SetUp(ctx, checker.Clouds, optedOut, map[string]string{"lanyard.dev/inject": "disabled"}, identities.Accounts)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, optedOut) })
		pod := framework.SDKPod("three-clouds", framework.Go, framework.AllClouds()...)
		created := checker.Create(ctx, optedOut, pod)
		expect.Untouched(&pod.Spec, created)
		checker.Check(ctx, name, framework.Go, created, framework.SDKContainer, identities.Nothing())
	})

	It("the pods of kube-system", func(ctx SpecContext) {
		accounts := cluster.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
		account, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "identity-", Annotations: map[string]string{"lanyard.dev/aws-role-arn": identities.Role, "lanyard.dev/aws-region": "eu-central-1"},
		}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) error { return accounts.Delete(ctx, account.Name, metav1.DeleteOptions{}) })
		pod := framework.SDKPod(account.Name, framework.Go, journal.AWS)
		created, err := cluster.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		expect.Untouched(&pod.Spec, created)
	})

	It("the mirror pod of a static pod", func(ctx SpecContext) {
		const mirrored = "identity-mirror"
		Expect(cluster.CreateNamespace(ctx, mirrored, nil)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, mirrored) })
		// Annotate the ServiceAccount of pods that name none, which a controller creates.
		Eventually(ctx, func(ctx context.Context) error {
			_, err := cluster.Run(ctx, "kubectl", "annotate", "serviceaccount", "default", "--namespace", mirrored, "lanyard.dev/aws-role-arn="+identities.Role)
			return err
		}).Should(Succeed())
		Expect(cluster.WaitInjected(ctx, mirrored, "default")).To(Succeed())

		static := framework.SDKPod("", framework.Python, journal.AWS)
		static.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		static.ObjectMeta = metav1.ObjectMeta{Name: "static", Namespace: mirrored}
		static.Spec.Containers[0].Command = []string{"/usr/bin/python3", "-c", "import time; time.sleep(3600)"}
		node := putStaticPod(ctx, static)
		var mirror *corev1.Pod
		Eventually(func() (err error) {
			mirror, err = cluster.CoreV1().Pods(mirrored).Get(ctx, "static-"+node, metav1.GetOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
		Expect(mirror.Annotations).To(HaveKey(corev1.MirrorPodAnnotationKey))
		expect.Untouched(&static.Spec, mirror)
	})
})

// staticPods is the directory that the kubelet reads with kubeadm and kind.
const staticPods = "/etc/kubernetes/manifests"

// putStaticPod adds the static pod to a node and returns the node's name.
func putStaticPod(ctx context.Context, pod *corev1.Pod) (node string) {
	GinkgoHelper()
	nodes, err := cluster.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(nodes.Items).NotTo(BeEmpty())
	node = nodes.Items[0].Name
	manifest, err := json.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	file := staticPods + "/lanyard-e2e-static.json"
	runOnNode(ctx, node, "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])", file, string(manifest))
	DeferCleanup(func(ctx SpecContext) {
		runOnNode(ctx, node, "import pathlib, sys; pathlib.Path(sys.argv[1]).unlink()", file)
	})
	return node
}

// runOnNode runs a Python program with access to the node's directory of static
// pods.
func runOnNode(ctx context.Context, node, program string, args ...string) {
	GinkgoHelper()
	container := framework.SDK(framework.Python, args...)
	container.Command = []string{"/usr/bin/python3", "-c", program}
	container.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "static-pods", MountPath: staticPods}}
	pod, err := cluster.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "static-pods-"},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{container},
			Volumes: []corev1.Volume{{Name: "static-pods", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: staticPods}}}},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	ended, err := cluster.WaitContainer(ctx, pod, container.Name, framework.Terminated)
	Expect(err).NotTo(HaveOccurred())
	Expect(ended.Status.ContainerStatuses[0].State.Terminated.ExitCode).To(BeZero())
	Expect(cluster.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})).To(Succeed())
}
