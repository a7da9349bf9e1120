// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// newEvent creates an event as a kubelet or a controller does. It happened last at the given time.
func newEvent(ctx context.Context, about corev1.ObjectReference, reason, message string, at time.Time) {
	GinkgoHelper()
	about.Namespace = "events"
	_, err := env.client.CoreV1().Events("events").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: about.Name + "."}, InvolvedObject: about,
		Reason: reason, Message: message, LastTimestamp: metav1.NewTime(at), Type: corev1.EventTypeWarning,
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// These tests stand in for kubelets and controllers: they create the events.
var _ = Describe("the newest event of explain", Ordered, func() {
	const (
		mount = `MountVolume.SetUp failed for volume "bound-sa-token" : failed to fetch token: `
		gone  = mount + `serviceaccounts "cart" not found`
	)
	var pod, set corev1.ObjectReference
	event := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		_, out, _ := lanyard(ctx, append([]string{"explain", "--namespace", "events", "--output", "jsonpath={range .findings[?(@.link)]}{.about}: {.text}{end}"}, args...)...)
		return out
	}
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "events")
		newServiceAccount(ctx, "events", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		replicaSet := newDeployment(ctx, "events", "cart", "cart")
		newReplica(ctx, replicaSet, "cart-1-a", nil)
		newDeployment(ctx, "events", "cart-api", "cart")
		created, err := env.client.CoreV1().Pods("events").Get(ctx, "cart-1-a", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod = corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: created.Name, UID: created.UID}
		set = corev1.ObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: replicaSet.Name, UID: replicaSet.UID}
	})

	It("is none without an event of the pod", func(ctx SpecContext) {
		newEvent(ctx, pod, "FailedMount", `MountVolume.SetUp failed for volume "data" : no such disk`, time.Now().Add(time.Hour))
		newEvent(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: "of-an-older-pod"}, "FailedMount", gone, time.Now())
		newEvent(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: "cart-gone", UID: "gone"}, "FailedMount", gone, time.Now())
		Expect(event(ctx, "pod/cart-1-a")).To(BeEmpty())
		Expect(event(ctx, "deployment/cart")).To(BeEmpty())
	})

	It("is the kubelet's about the token volume", func(ctx SpecContext) {
		newEvent(ctx, pod, "FailedMount", mount+"older", time.Now().Add(-time.Minute))
		newEvent(ctx, pod, "FailedMount", gone, time.Now())
		expectOutputs(ctx, "explain-failed-mount", command.ExitFound, "explain", "pod/cart-1-a", "--namespace", "events")
		Expect(event(ctx, "deployment/cart")).To(HavePrefix("pod/cart-1-a: "+gone+"; last at "), "a workload of the pod")
		Expect(event(ctx, "deployment/cart-api")).To(BeEmpty(), "another workload with a similar name")
		Expect(event(ctx, "serviceaccount/cart")).To(BeEmpty())
	})

	It("is over when the pod runs", func(ctx SpecContext) {
		running := []byte(`{"status": {"phase": "Running"}}`)
		_, err := env.client.CoreV1().Pods("events").Patch(ctx, pod.Name, types.MergePatchType, running, metav1.PatchOptions{}, "status")
		Expect(err).NotTo(HaveOccurred())
		Expect(event(ctx, "pod/cart-1-a")).To(HavePrefix("pod/cart-1-a: "+gone+"; last at "), "a kubelet that cannot renew the token")
		Expect(env.client.CoreV1().Events("events").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
		newEvent(ctx, pod, "FailedMount", gone, time.Now().Add(-time.Hour))
		Expect(event(ctx, "pod/cart-1-a")).To(BeEmpty())
	})

	It("is the controller's until it creates a pod", func(ctx SpecContext) {
		const quota = `Error creating: pods "cart-1-b" is forbidden: exceeded quota: pods`
		newEvent(ctx, set, "FailedCreate", quota, time.Now().Add(time.Minute))
		expectOutputs(ctx, "explain-failed-create", command.ExitFound, "explain", "deployment/cart", "--namespace", "events")
		newEvent(ctx, set, "SuccessfulCreate", "Created pod: cart-1-b", time.Now().Add(2*time.Minute))
		Expect(event(ctx, "deployment/cart")).NotTo(ContainSubstring("quota"))
	})

	It("needs a right", func(ctx SpecContext) {
		const name = "eventless" // bind knows the roles of Kubernetes
		_, err := env.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "system:aggregate-to-" + name},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods", "serviceaccounts"}, Verbs: []string{"get", "list", "create"}},
				{APIGroups: []string{"apps"}, Resources: []string{"*"}, Verbs: []string{"get"}},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		bind(ctx, "events", name, name)
		_, out, _ := lanyardAs(ctx, user(name), "", "explain", "deployment/cart", "--namespace", "events")
		Expect(out).To(ContainSubstring("? the newest event about the token of the pod: you may not list events in the namespace events\n"))
	})
})
