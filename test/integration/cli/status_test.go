// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// newRolledOut creates a namespace with workloads whose pods are current, stale and
// without credentials.
func newRolledOut(ctx context.Context, namespace string) {
	GinkgoHelper()
	newNamespace(ctx, namespace)
	newServiceAccount(ctx, namespace, "cart", nil)
	newServiceAccount(ctx, namespace, "idle", map[string]string{"lanyard.dev/audience": "vault"})
	newServiceAccount(ctx, namespace, "plain", nil)
	newServiceAccount(ctx, namespace, "short", map[string]string{"lanyard.dev/aws-role-arn": role})
	set := newDeployment(ctx, namespace, "cart", "cart")
	newReplica(ctx, set, "cart-1-without", nil)
	_, err := env.client.CoreV1().Pods(namespace).Create(ctx, newPod("unrelated", "plain"), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())

	reannotate(ctx, namespace, "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
	expectInjected(ctx, namespace, "cart", "aws")
	newReplica(ctx, set, "cart-1-stale", nil)
	reannotate(ctx, namespace, "cart", map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/audience": "other"})
	Eventually(ctx, func(ctx context.Context) (string, error) {
		pod, err := env.client.CoreV1().Pods(namespace).Create(ctx, newPod("x", "cart"), dryRun)
		if err != nil {
			return "", err
		}
		volumes, err := json.Marshal(pod.Spec.Volumes)
		return string(volumes), err
	}).Should(ContainSubstring("other"))
	newReplica(ctx, set, "cart-1-current", nil)
	newReplica(ctx, set, "cart-1-opted-out", map[string]string{"lanyard.dev/inject": "false"})

	// Its tokens have a lifetime of their own, so its hash differs from that of other pods.
	expectInjected(ctx, namespace, "short", "aws")
	annotations := map[string]string{"lanyard.dev/token-expiration-seconds": "600"}
	template := batchv1.JobSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: corev1.PodSpec{
		ServiceAccountName: "short", RestartPolicy: corev1.RestartPolicyNever, Containers: newPod("", "").Spec.Containers,
	}}}
	cron, err := env.client.BatchV1().CronJobs(namespace).Create(ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "short"},
		Spec:       batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: new(true), JobTemplate: batchv1.JobTemplateSpec{Spec: template}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	owner := *metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))
	job, err := env.client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "short-1", OwnerReferences: []metav1.OwnerReference{owner}}, Spec: template,
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	pod := newPod("short-1-current", "short")
	pod.Annotations = annotations
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	_, err = env.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// expectInjected waits until pods of the ServiceAccount are injected.
func expectInjected(ctx context.Context, namespace, name, providers string) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (map[string]string, error) {
		pod, err := env.client.CoreV1().Pods(namespace).Create(ctx, newPod("x", name), dryRun)
		if err != nil {
			return nil, err
		}
		return pod.Annotations, nil
	}).Should(HaveKeyWithValue("lanyard.dev/injected", providers))
}

var _ = Describe("status", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { newRolledOut(ctx, "counted") })

	It("counts the pods of each workload", func(ctx SpecContext) {
		expectOutputs(ctx, "status", command.ExitOK, "status", "--namespace", "counted")
	})

	It("lists only workloads with outdated pods", func(ctx SpecContext) {
		expectOutputs(ctx, "status-stale", command.ExitFound, "status", "--namespace", "counted", "--stale")
	})

	It("says that nothing is outdated", func(ctx SpecContext) {
		newNamespace(ctx, "fresh")
		code, out, _ := lanyard(ctx, "status", "--namespace", "fresh", "--stale")
		Expect(out).To(Equal("every pod has the credentials that its ServiceAccount asks for\n"))
		Expect(code).To(Equal(command.ExitOK))
		_, out, _ = lanyard(ctx, "status", "--namespace", "fresh")
		Expect(out).To(Equal("no ServiceAccount asks for an identity\n"))
	})

	It("shows excluded namespaces, and does not call them outdated", func(ctx SpecContext) {
		_, err := env.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left-out", Labels: map[string]string{"lanyard.dev/inject": "disabled"}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		newServiceAccount(ctx, "left-out", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		_, err = env.client.CoreV1().Pods("left-out").Create(ctx, newPod("cart-0", "cart"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, out, _ := lanyard(ctx, "status", "--namespace", "left-out")
		Expect(out).To(MatchRegexp(`(?m)^cart +excluded +pod/cart-0 +1 +0 +0 +0 +1 excluded\n`))
		code, _, _ := lanyard(ctx, "status", "--namespace", "left-out", "--stale")
		Expect(code).To(Equal(command.ExitOK))
	})
})

// viewer returns the kubeconfig of a user with the role view, in one namespace or in all. No
// controller aggregates the role here, so the user has its part.
func viewer(ctx context.Context, name, namespace string) string {
	GinkgoHelper()
	view := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-view"}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	meta := metav1.ObjectMeta{Name: name}
	var err error
	if namespace == "" {
		_, err = env.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: view, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = env.client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: view, Subjects: subjects}, metav1.CreateOptions{})
	}
	Expect(err).NotTo(HaveOccurred())
	waitToList(ctx, name, namespace, "", "serviceaccounts")
	return user(name)
}

// A user who may not create pods must not get a wrong answer.
var _ = Describe("status for a reader", Ordered, func() {
	var inOne, inAll string
	BeforeAll(func(ctx SpecContext) {
		newRolledOut(ctx, "viewed")
		inOne, inAll = viewer(ctx, "view-one", "viewed"), viewer(ctx, "view-all", "")
	})

	It("evaluates the rules here, with settings", func(ctx SpecContext) {
		code, out, errOut := lanyardAs(ctx, inAll, "", "status", "--namespace", "viewed", "--stale", "--config", customConfig)
		Expect(errOut).To(BeEmpty())
		Expect(code).To(Equal(command.ExitFound), out)
		Expect(out).To(MatchRegexp(`cart +guarded +deployment/cart +4 +1 +1 +1 +1 opted-out\n`))
		Expect(out).To(ContainSubstring("  - new pods were evaluated here, not by the cluster: you may not create pods\n"))
	})

	It("names the rights that are missing, and counts", func(ctx SpecContext) {
		code, out, errOut := lanyardAs(ctx, inOne, "", "status", "--namespace", "viewed")
		Expect(out).To(MatchRegexp(`cart +guarded +deployment/cart +4 +0 +0 +0 +1 opted-out, 3 unknown\n`))
		Expect(out).To(ContainSubstring("viewed/cart: unknown: the credentials of a new pod are unknown: you may not create pods in the namespace viewed, and the settings of the webhook could not be read: "))
		Expect(errOut).To(MatchRegexp(`^error: the result is not complete: \d parts could not be read or compared, 4 pods unknown. The reasons are in the output\n$`))
		Expect(code).To(Equal(command.ExitFailed))
		code, out, errOut = lanyardAs(ctx, inOne, "", "status", "--all-namespaces")
		Expect(out).To(BeEmpty())
		Expect(errOut).To(HavePrefix("error: list namespaces: "))
		Expect(errOut).To(ContainSubstring("Name a namespace with --namespace"))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("does not count the pods of a user who may not list pods", func(ctx SpecContext) {
		_, err := env.client.RbacV1().Roles("viewed").Create(ctx, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "accounts"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list"}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = env.client.RbacV1().RoleBindings("viewed").Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "accounts"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "accounts"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "accounts"}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		accounts := user("accounts")
		Eventually(ctx, func(ctx context.Context) string { // the API server knows the role
			_, out, _ := lanyardAs(ctx, accounts, "", "status", "--namespace", "viewed")
			return out
		}).ShouldNot(BeEmpty())
		code, out, errOut := lanyardAs(ctx, accounts, "", "status", "--namespace", "viewed", "--stale")
		Expect(out).To(ContainSubstring("the pods of the namespace, which are not counted: you may not list pods in the namespace viewed\n"))
		Expect(out).NotTo(ContainSubstring("every pod"))
		Expect(errOut).To(HavePrefix("error: the result is not complete: "))
		Expect(code).To(Equal(command.ExitFailed))
	})
})

// rows returns the workloads of a table of status.
func rows(out string) (workloads []string) {
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 3 && strings.Contains(fields[2], "/") {
			workloads = append(workloads, fields[2])
		}
	}
	return workloads
}

var _ = Describe("status of some objects", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "by-name")
		newServiceAccount(ctx, "by-name", "cart", nil)
		newServiceAccount(ctx, "by-name", "mail", map[string]string{"lanyard.dev/aws-role-arn": role})
		for _, name := range []string{"outdated", "also-outdated", "unused"} {
			set := newDeployment(ctx, "by-name", name, "cart")
			if name != "unused" {
				newReplica(ctx, set, name+"-0", nil)
			}
		}
		for _, name := range []string{"alone", "mail"} {
			pod := newPod(name, map[string]string{"alone": "cart", "mail": "mail"}[name])
			pod.Labels = map[string]string{"team": name}
			_, err := env.client.CoreV1().Pods("by-name").Create(ctx, pod, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		reannotate(ctx, "by-name", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		expectInjected(ctx, "by-name", "cart", "aws")
	})

	DescribeTable("lists them", func(ctx SpecContext, args string, want ...string) {
		_, out, errOut := lanyard(ctx, append([]string{"status", "--namespace", "by-name"}, strings.Fields(args)...)...)
		Expect(errOut).To(BeEmpty())
		Expect(rows(out)).To(Equal(want))
	},
		Entry("a workload", "deployment/outdated", "deployment/outdated"),
		Entry("a type and names", "deployments unused outdated", "deployment/outdated"),
		Entry("a pod of a workload", "pod/outdated-0", "deployment/outdated"),
		Entry("the owner of a pod", "replicaset/outdated-1", "deployment/outdated"),
		Entry("a pod of its own", "pod alone", "pod/alone"),
		Entry("a ServiceAccount", "sa/mail", "pod/mail"),
		Entry("a label of pods", "-l team=mail", "pod/mail"),
		Entry("a label, and outdated", "-l app=outdated --stale", "deployment/outdated"),
		Entry("what is outdated", "--stale", "deployment/also-outdated", "deployment/outdated", "pod/alone"),
	)

	It("says that nothing is selected", func(ctx SpecContext) {
		code, out, _ := lanyard(ctx, "status", "--namespace", "by-name", "deployment/unused")
		Expect(out).To(Equal("no pod of a ServiceAccount that asks for an identity is selected. To see why: lanyard explain deployment/unused --namespace by-name\n"))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("lists for kubectl rollout restart what a restart replaces, and says what is left", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "status", "--stale", "-o", "name", "-n", "by-name")
		Expect(out).To(Equal("deployment/also-outdated\ndeployment/outdated\n"))
		Expect(errOut).To(Equal("warning: no restart replaces the pods of pod/alone\n  See: lanyard explain pod/alone --namespace by-name\n"))
		Expect(code).To(Equal(command.ExitFound))
	})

	It("does not list for a restart what cannot be restarted, and says what to do", func(ctx SpecContext) {
		newNamespace(ctx, "held")
		newServiceAccount(ctx, "held", "cart", nil)
		for _, name := range []string{"paused", "running"} {
			newReplica(ctx, newDeployment(ctx, "held", name, "cart"), name+"-0", nil)
		}
		pause := []byte(`{"spec":{"paused":true}}`)
		_, err := env.client.AppsV1().Deployments("held").Patch(ctx, "paused", types.MergePatchType, pause, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		labels := map[string]string{"app": "log"}
		set, err := env.client.AppsV1().DaemonSets("held").Create(ctx, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "log"},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels}, UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("", "cart").Spec},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod := newPod("log-0", "cart")
		pod.Labels, pod.OwnerReferences = labels, []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		_, err = env.client.CoreV1().Pods("held").Create(ctx, pod, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		reannotate(ctx, "held", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		expectInjected(ctx, "held", "cart", "aws")

		code, out, errOut := lanyard(ctx, "status", "--stale", "-o", "name", "-n", "held")
		Expect(out).To(Equal("deployment/running\n"))
		Expect(errOut).To(Equal(`warning: no restart replaces the pods of daemonset/log
  A restart of daemonset/log does not replace the pod: its update strategy is OnDelete. Delete the pod, and its controller creates a new one: kubectl delete pod POD --namespace held
warning: no restart replaces the pods of deployment/paused
  A restart of deployment/paused does not replace the pod: it is paused. Delete the pod, and its controller creates a new one: kubectl delete pod POD --namespace held
`))
		Expect(code).To(Equal(command.ExitFound))
		expectOutput(ctx, env.kubeconfig, "status-held", command.ExitFound, BeEmpty(), "status", "--stale", "--namespace", "held")
		_, out, _ = lanyard(ctx, "explain", "pod/paused-0", "--namespace", "held")
		Expect(out).To(ContainSubstring("-> A restart of deployment/paused does not replace the pod: it is paused. Delete the pod, and its controller creates a new one: kubectl delete pod paused-0 --namespace held\n"))
	})

	It("does not list a workload for a restart that a pod only names as its owner", func(ctx SpecContext) {
		newNamespace(ctx, "forged")
		newServiceAccount(ctx, "forged", "cart", nil)
		newServiceAccount(ctx, "forged", "payments", nil)
		newDeployment(ctx, "forged", "payments", "cart")
		payments, err := env.client.AppsV1().Deployments("forged").Get(ctx, "payments", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		forged := newPod("forged", "cart")
		// Anyone who can create pods can usually read the UID. No controller removes this
		// reference.
		forged.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "payments", UID: payments.UID, Controller: new(true)}}
		_, err = env.client.CoreV1().Pods("forged").Create(ctx, forged, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		reannotate(ctx, "forged", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		expectInjected(ctx, "forged", "cart", "aws")
		_, out, errOut := lanyard(ctx, "status", "--stale", "-o", "name", "-n", "forged")
		Expect(out).To(BeEmpty())
		Expect(errOut).To(ContainSubstring("no restart replaces the pods of pod/forged"))
	})
})

var _ = Describe("a pod with variables of its own", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "shadowed")
		newServiceAccount(ctx, "shadowed", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		expectInjected(ctx, "shadowed", "cart", "aws")
		_, err := env.client.CoreV1().ConfigMaps("shadowed").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "s3"}, Data: map[string]string{"AWS_PROFILE": "minio", "BUCKET": "b"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		keys := newPod("keys", "cart")
		keys.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_ACCESS_KEY_ID", Value: "x"}}
		from := newPod("from", "cart")
		from.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s3"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "minio"}}},
		}
		for _, pod := range []*corev1.Pod{keys, from} {
			_, err := env.client.CoreV1().Pods("shadowed").Create(ctx, pod, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
	})

	It("is explained, with the variable to remove, and the Secrets that nobody reads", func(ctx SpecContext) {
		expectOutputs(ctx, "explain-shadowed", command.ExitFound, "explain", "pod/from", "--namespace", "shadowed", "--config", adopting(""))
	})

	It("is shadowed in status, with the variable to remove", func(ctx SpecContext) {
		expectOutputs(ctx, "status-shadowed", command.ExitFound, "status", "--namespace", "shadowed", "--config", adopting(""))
	})
})
