// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

// always is the restart policy of a native sidecar.
var always = corev1.ContainerRestartPolicyAlways

var _ = DescribeTable("Each kind of container gets credentials:", func(ctx SpecContext, name string, change func(*corev1.PodSpec), containers ...string) {
	checker.Begin(name, framework.Go, identities.ThreeClouds())
	pod := framework.SDKPod("three-clouds", framework.Go, framework.AllClouds()...)
	change(&pod.Spec)
	pod = checker.Create(ctx, namespace, pod)
	for _, container := range containers {
		By("checking container " + container)
		checker.Check(ctx, name, framework.Go, pod, container, identities.ThreeClouds())
	}
},
	Entry("an init container", "init container", func(spec *corev1.PodSpec) {
		spec.InitContainers = []corev1.Container{named("init", framework.SDK(framework.Go, framework.AllClouds()...))}
	}, "init", framework.SDKContainer),
	Entry("a native sidecar", "native sidecar", func(spec *corev1.PodSpec) {
		sidecar := named("sidecar", framework.SDK(framework.Go, append([]string{"--forever"}, framework.AllClouds()...)...))
		sidecar.RestartPolicy = &always
		spec.InitContainers = []corev1.Container{sidecar}
	}, "sidecar", framework.SDKContainer),
	Entry("a container of a non-root user, without fsGroup", "user 1000", func(spec *corev1.PodSpec) {
		spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000))}
	}, framework.SDKContainer),
	Entry("a container of a non-root user, with fsGroup", "user 1000, fsGroup 2000", func(spec *corev1.PodSpec) {
		spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), FSGroup: new(int64(2000))}
	}, framework.SDKContainer),
	Entry("two containers of two users", "users 1000 and 2000", func(spec *corev1.PodSpec) {
		second := named("second", spec.Containers[0])
		second.SecurityContext = second.SecurityContext.DeepCopy()
		spec.Containers[0].SecurityContext.RunAsUser = new(int64(1000))
		second.SecurityContext.RunAsUser = new(int64(2000))
		spec.Containers = append(spec.Containers, second)
	}, framework.SDKContainer, "second"),
)

func named(name string, container corev1.Container) corev1.Container {
	container.Name = name
	return container
}

var _ = DescribeTable("Each kind of workload gets credentials:", func(ctx SpecContext, name string, start func(context.Context, metav1.ObjectMeta, corev1.PodTemplateSpec) error) {
	checker.Begin(name, framework.Go, identities.ThreeClouds())
	labels := map[string]string{"workload": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: framework.SDKPod("three-clouds", framework.Go).Spec}
	template.Spec.Containers[0].Args = append([]string{"--forever"}, framework.AllClouds()...)
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	checker.Clouds.Redirect(&template.Spec)
	Expect(start(ctx, metav1.ObjectMeta{Name: name, Namespace: namespace}, template)).To(Succeed())
	var pod *corev1.Pod
	Eventually(func(g Gomega) {
		pods, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "workload=" + name})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods.Items).NotTo(BeEmpty())
		pod = &pods.Items[0]
	}).WithContext(ctx).Should(Succeed())
	checker.Check(ctx, name, framework.Go, pod, framework.SDKContainer, identities.ThreeClouds())
},
	Entry("a Job", "job", func(ctx context.Context, meta metav1.ObjectMeta, template corev1.PodTemplateSpec) error {
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		template.Spec.Containers[0].Args = framework.AllClouds()
		_, err := cluster.BatchV1().Jobs(meta.Namespace).Create(ctx,
			&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}}, metav1.CreateOptions{})
		return err
	}),
	Entry("a Deployment", "deployment", func(ctx context.Context, meta metav1.ObjectMeta, template corev1.PodTemplateSpec) error {
		_, err := cluster.AppsV1().Deployments(meta.Namespace).Create(ctx,
			&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selects(template), Template: template}}, metav1.CreateOptions{})
		return err
	}),
	Entry("a StatefulSet", "statefulset", func(ctx context.Context, meta metav1.ObjectMeta, template corev1.PodTemplateSpec) error {
		_, err := cluster.AppsV1().StatefulSets(meta.Namespace).Create(ctx,
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selects(template), Template: template}}, metav1.CreateOptions{})
		return err
	}),
	Entry("a DaemonSet", "daemonset", func(ctx context.Context, meta metav1.ObjectMeta, template corev1.PodTemplateSpec) error {
		_, err := cluster.AppsV1().DaemonSets(meta.Namespace).Create(ctx,
			&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selects(template), Template: template}}, metav1.CreateOptions{})
		return err
	}),
)

func selects(template corev1.PodTemplateSpec) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: template.Labels}
}

var _ = Describe("kubectl debug", func() {
	var pod *corev1.Pod

	BeforeEach(func(ctx SpecContext) {
		pod = checker.Create(ctx, namespace, framework.SDKPod("three-clouds", framework.Go, append([]string{"--forever"}, framework.AllClouds()...)...))
		_, err := cluster.WaitContainer(ctx, pod, framework.SDKContainer, framework.Started)
		Expect(err).NotTo(HaveOccurred())
	})

	It("injects an ephemeral container like its pod", func(ctx SpecContext) {
		const name = "kubectl debug"
		checker.Begin(name, framework.Go, identities.ThreeClouds())
		checker.Debug(ctx, pod)
		checker.Check(ctx, name, framework.Go, pod, expect.Debugger, identities.ThreeClouds())
	})

	It("injects a copy of a pod with its own credentials", func(ctx SpecContext) {
		const name = "kubectl debug --copy-to"
		checker.Begin(name, framework.Go, identities.ThreeClouds())
		checker.Debug(ctx, pod, "--copy-to", pod.Name+"-copy")
		duplicate, err := cluster.CoreV1().Pods(namespace).Get(ctx, pod.Name+"-copy", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) error {
			return cluster.CoreV1().Pods(namespace).Delete(ctx, duplicate.Name, metav1.DeleteOptions{})
		})
		for _, container := range []string{framework.SDKContainer, expect.Debugger} {
			checker.Check(ctx, name, framework.Go, duplicate, container, identities.ThreeClouds())
		}
	})
})
