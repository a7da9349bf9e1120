// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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

const (
	// pods is the number of pods while the webhook is gone. A node of two cores cannot run
	// so many at once, so one pod of ten runs, and the others wait for a scheduler.
	pods, runs = 200, 10
	// fewest is the minimum number of pods before and after the API server is killed.
	fewest = 20
	// gate keeps a pod from being scheduled.
	gate = "lanyard.dev/e2e"
)

// granted contains the permissions that the pods of these specs must get.
var granted = expect.Outcomes{journal.AWS: expect.Granted(identities.Role)}

// beside checks the policies as a fallback of the webhook with its guard.
func beside() {
	install := framework.Install{Values: []string{"shutdownDelaySeconds=0"}}

	BeforeAll(func(ctx SpecContext) {
		Expect(install.Up(ctx, cluster)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return install.Down(ctx, cluster) })
		Eventually(ctx, webhookResponds).Should(Succeed())
	})

	It("inject each of 200 pods while all replicas are gone", func(ctx SpecContext) {
		const name = "200 pods, webhook gone"
		checker.Begin(name, framework.Go, granted)
		_, err := cluster.Run(ctx, "kubectl", "scale", "deployment/"+framework.Deployment, "--namespace", framework.Namespace, "--replicas", "0")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.WaitReady(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, webhookResponds).ShouldNot(Succeed())
		// The webhook for ServiceAccounts has failurePolicy Fail.
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: "outage", Annotations: map[string]string{"lanyard.dev/aws-role-arn": identities.Role, "lanyard.dev/aws-region": "eu-central-1"},
		}}
		_, err = cluster.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		// The guard may know of the ServiceAccount before the policies do.
		Eventually(ctx, dryRun).WithArguments(namespace, account.Name).Should(Succeed())

		var running []*corev1.Pod
		for i := range pods {
			pod := framework.SDKPod("aws", framework.Go, journal.AWS)
			if i%runs != 0 {
				pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
			}
			checker.Clouds.Redirect(&pod.Spec)
			pod, err = cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred(), "pod %d of %d", i+1, pods)
			Expect(podstream.HasIdentity(pod)).To(BeTrue(), "pod %d of %d", i+1, pods)
			if i%runs == 0 {
				running = append(running, pod)
			}
		}
		Expect(webhookResponds(ctx)).NotTo(Succeed())
		expect.All(running, func(pod *corev1.Pod) { checker.Check(ctx, name, framework.Go, pod, framework.SDKContainer, granted) })
		report = append(report, fmt.Sprintf("webhook gone: %d pods created, all injected, none denied; %d of them ran, all with a credential", pods, len(running)))
	})
}

// webhookResponds creates a pod that the webhook must see, in a dry run.
func webhookResponds(ctx context.Context) error {
	pod := framework.SDKPod("none", framework.Go, journal.AWS)
	pod.Labels = map[string]string{"lanyard.dev/probe": "true"}
	_, err := podstream.Create(ctx, cluster, namespace, pod)
	return err
}

// restart kills the API server while pods are created.
func restart() {
	It("inject each pod that is stored", func(ctx SpecContext) {
		const name = "API server killed"
		checker.Begin(name, framework.Go, granted)
		servers, err := cluster.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-apiserver"})
		Expect(err).NotTo(HaveOccurred())
		Expect(servers.Items).To(HaveLen(1), "a control plane of one node, as kubeadm makes it")
		before := framework.Container(&servers.Items[0], "kube-apiserver").RestartCount

		created, end := creating(ctx)
		Eventually(ctx, created.Load).Should(BeNumerically(">=", fewest))
		done, err := cluster.KillContainer(ctx, &servers.Items[0], "kube-apiserver")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			server, err := cluster.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, servers.Items[0].Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			// On a busy machine, the kubelet may find the new one too slow, and start another.
			g.Expect(framework.Container(server, "kube-apiserver").RestartCount).To(BeNumerically(">", before))
		}).Should(Succeed())
		Eventually(ctx, created.Load).Should(BeNumerically(">=", created.Load()+fewest))
		tried := end()
		Expect(done(ctx)).To(Succeed())

		stored, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "e2e=restart"})
		Expect(err).NotTo(HaveOccurred())
		for i := range stored.Items {
			Expect(podstream.HasIdentity(&stored.Items[i])).To(BeTrue(), stored.Items[i].Name)
		}
		Expect(len(stored.Items)).To(And(BeNumerically(">=", 2*fewest), BeNumerically("<", tried)), "an outage in between")
		report = append(report, fmt.Sprintf("API server killed: %d pods tried, %d stored, all injected", tried, len(stored.Items)))
		last := newest(stored.Items)
		_, err = cluster.CoreV1().Pods(namespace).Patch(ctx, last.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		checker.Check(ctx, name, framework.Go, last, framework.SDKContainer, granted)
	})
}

// creating creates ten pods per second until end is called, which returns how many were
// tried. created is the number of pods that the server has confirmed.
func creating(ctx context.Context) (created *atomic.Int64, end func() int) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	created = new(atomic.Int64)
	tried := 0
	running.Go(func() {
		every := time.NewTicker(100 * time.Millisecond)
		defer every.Stop()
		for ; ctx.Err() == nil; <-every.C {
			tried++
			pod := framework.SDKPod("aws", framework.Go, journal.AWS)
			pod.Labels, pod.Spec.SchedulingGates = map[string]string{"e2e": "restart"}, []corev1.PodSchedulingGate{{Name: gate}}
			checker.Clouds.Redirect(&pod.Spec)
			// The server is killed meanwhile.
			if _, err := cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err == nil {
				created.Add(1)
			}
		}
	})
	return created, func() int {
		cancel()
		running.Wait()
		return tried
	}
}

// newest returns the youngest of the pods.
func newest(pods []corev1.Pod) *corev1.Pod {
	last := &pods[0]
	for i := range pods {
		if last.CreationTimestamp.Before(&pods[i].CreationTimestamp) {
			last = &pods[i]
		}
	}
	return last
}
