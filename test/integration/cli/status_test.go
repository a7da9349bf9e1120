// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
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

	It("finds the same in all namespaces", func(ctx SpecContext) {
		_, out, _ := lanyard(ctx, "status", "--all-namespaces", "--stale")
		Expect(out).To(MatchRegexp(`counted +cart +guarded +deployment/cart +4 +1 +1 +1 +1 opted-out\n`))
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
	Eventually(ctx, func(ctx context.Context) (bool, error) { // the API server knows the role
		review, err := env.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: name, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "serviceaccounts"},
		}}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	}).Should(BeTrue())
	return user(name)
}

// A user who may not create pods gets no false response.
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
		Expect(out).To(ContainSubstring("  viewed: new pods were evaluated here, not by the cluster: you may not create pods in the namespace viewed\n"))
	})

	It("names the rights that are missing, and counts", func(ctx SpecContext) {
		code, out, errOut := lanyardAs(ctx, inOne, "", "status", "--namespace", "viewed")
		Expect(out).To(MatchRegexp(`cart +guarded +deployment/cart +4 +0 +0 +0 +1 opted-out, 3 unknown\n`))
		Expect(out).To(ContainSubstring("viewed/cart: unknown: the credentials of a new pod are unknown: you may not create pods in the namespace viewed, and the settings of the webhook could not be read: "))
		Expect(errOut).To(MatchRegexp(`^error: the result is not complete: [01] skipped, 4 pods unknown. The reasons are in the output\n$`))
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
		Expect(out).To(ContainSubstring("viewed: skipped: the pods of the namespace are not counted: "))
		Expect(out).NotTo(ContainSubstring("every pod"))
		Expect(errOut).To(HavePrefix("error: the result is not complete: "))
		Expect(code).To(Equal(command.ExitFailed))
	})
})

// roll does what the controller of a Deployment would do: it reports new pods as
// available.
func roll(ctx context.Context, namespace, name string) error {
	api := env.client.AppsV1().Deployments(namespace)
	deployment, err := api.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if deployment.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		return fmt.Errorf("deployment %s was not restarted", name)
	}
	deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1, ReadyReplicas: 1}
	_, err = api.UpdateStatus(ctx, deployment, metav1.UpdateOptions{})
	return err
}

var _ = Describe("restart --stale", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { newRolledOut(ctx, "restarted") })

	const restarting = "restarting deployment/cart in the namespace restarted (1 of 1) ...\n"

	// restarted reports whether the template of the Deployment was changed.
	restarted := func(ctx context.Context) bool {
		GinkgoHelper()
		deployment, err := env.client.AppsV1().Deployments("restarted").Get(ctx, "cart", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return deployment.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != ""
	}

	It("only shows the plan in a dry run", func(ctx SpecContext) {
		expectOutputs(ctx, "restart-dry-run", command.ExitOK, "restart", "--stale", "--namespace", "restarted", "--dry-run=client")
		Expect(restarted(ctx)).To(BeFalse())
	})

	DescribeTable("does nothing without a yes", func(ctx SpecContext, answer string) {
		code, out, errOut := lanyardAs(ctx, env.kubeconfig, answer, "restart", "--stale", "--namespace", "restarted")
		Expect(errOut).To(ContainSubstring("Restart this workload? [y/N] nothing was restarted\n"))
		Expect(out).To(BeEmpty())
		Expect(code).To(Equal(command.ExitFound))
		Expect(restarted(ctx)).To(BeFalse())
	},
		Entry("at the end of the input", ""),
		Entry("with an empty line", "\n"),
		Entry("with a no", "n\n"),
		Entry("with something else", "yess\n"),
	)

	It("reports a workload that is not done in time", func(ctx SpecContext) {
		expectOutputsAs(ctx, env.kubeconfig, "restart-failed", command.ExitFound, Equal(restarting), "restart", "--stale", "--namespace", "restarted", "--yes", "--timeout", "1ms")
		Expect(restarted(ctx)).To(BeTrue())
	})

	It("stops at the first workload that is not done in time", func(ctx SpecContext) {
		newNamespace(ctx, "halted")
		newServiceAccount(ctx, "halted", "cart", nil)
		for _, name := range []string{"first", "second"} {
			newReplica(ctx, newDeployment(ctx, "halted", name, "cart"), name+"-0", nil)
		}
		reannotate(ctx, "halted", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		expectInjected(ctx, "halted", "cart", "aws")
		expectOutputsAs(ctx, env.kubeconfig, "restart-halted", command.ExitFound, Equal("restarting deployment/first in the namespace halted (1 of 2) ...\n"),
			"restart", "--stale", "--namespace", "halted", "--yes", "--timeout", "1ms")
		second, err := env.client.AppsV1().Deployments("halted").Get(ctx, "second", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(second.Spec.Template.Annotations).To(BeEmpty())
	})

	It("waits until the new pods are available", func(ctx SpecContext) {
		// The proxy also acts as the controller of the Deployment.
		kubeconfig := proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/deployments/cart") && restarted(ctx) {
				defer GinkgoRecover()
				Expect(roll(ctx, "restarted", "cart")).To(Succeed())
			}
			next.ServeHTTP(w, r)
		})
		code, out, errOut := lanyardAs(ctx, kubeconfig, "y\n", "restart", "--stale", "--namespace", "restarted")
		Expect(errOut).To(HaveSuffix(restarting))
		Expect(out).To(MatchRegexp(`restarted +deployment/cart +2 +restarted\n`))
		Expect(code).To(Equal(command.ExitOK))
		// No controller replaces the pods, so they can be restarted again.
		expectOutputsAs(ctx, kubeconfig, "restart", command.ExitOK, Equal(restarting), "restart", "--stale", "--namespace", "restarted", "--yes")
	})

	It("lists what must be restarted by hand", func(ctx SpecContext) {
		newNamespace(ctx, "by-hand")
		newServiceAccount(ctx, "by-hand", "cart", nil)
		_, err := env.client.CoreV1().Pods("by-hand").Create(ctx, newPod("alone", "cart"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		reannotate(ctx, "by-hand", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		expectInjected(ctx, "by-hand", "cart", "aws")
		expectOutputs(ctx, "restart-by-hand", command.ExitFound, "restart", "--stale", "--namespace", "by-hand", "--yes")
	})

	It("does not restart a workload that a pod only names as its owner", func(ctx SpecContext) {
		newNamespace(ctx, "forged")
		newServiceAccount(ctx, "forged", "cart", nil)
		newServiceAccount(ctx, "forged", "payments", nil)
		newDeployment(ctx, "forged", "payments", "payments")
		forged := newPod("forged", "cart")
		forged.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "payments", UID: "x", Controller: new(true)}}
		_, err := env.client.CoreV1().Pods("forged").Create(ctx, forged, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		reannotate(ctx, "forged", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		expectInjected(ctx, "forged", "cart", "aws")
		code, out, _ := lanyard(ctx, "restart", "--stale", "--namespace", "forged", "--yes", "--timeout", "1ms")
		Expect(out).To(MatchRegexp(`forged +pod/forged +1 +by hand +nothing replaces it`))
		Expect(code).To(Equal(command.ExitFound))
		payments, err := env.client.AppsV1().Deployments("forged").Get(ctx, "payments", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(payments.Spec.Template.Annotations).To(BeEmpty())
	})

	It("restarts only the workloads that are named or labelled", func(ctx SpecContext) {
		newNamespace(ctx, "by-name")
		newServiceAccount(ctx, "by-name", "cart", nil)
		for _, name := range []string{"outdated", "also-outdated", "unused"} {
			set := newDeployment(ctx, "by-name", name, "cart")
			if name != "unused" {
				newReplica(ctx, set, name+"-0", nil)
			}
		}
		reannotate(ctx, "by-name", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		expectInjected(ctx, "by-name", "cart", "aws")
		_, err := env.client.AppsV1().Deployments("by-name").Patch(ctx, "outdated", types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"shop"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, test := range []struct{ args, rows string }{
			{"deployment/unused", `by-name +deployment/unused +- +planned`},
			{"deployments unused outdated", `by-name +deployment/unused +- +planned\nby-name +deployment/outdated +- +planned`},
			{"deployment/unused deployment/outdated --stale", `by-name +deployment/outdated +1 +planned`},
			{"-l team=shop", `by-name +deployment/outdated +- +planned`},
			{"deployments -l team=shop --stale", `by-name +deployment/outdated +1 +planned`},
			{"--stale", `by-name +deployment/also-outdated +1 +planned\nby-name +deployment/outdated +1 +planned`},
			{"pod/outdated-0", `by-name +pod/outdated-0 +- +by hand +it has a controller: restart the workload that lanyard status shows`},
		} {
			args := append([]string{"restart", "--namespace", "by-name", "--dry-run=client"}, strings.Fields(test.args)...)
			code, out, errOut := lanyard(ctx, args...)
			Expect(errOut).To(BeEmpty(), test.args)
			Expect(out).To(MatchRegexp(`^NAMESPACE +WORKLOAD +OUTDATED +RESULT +WHY\n`+test.rows+` *\n$`), test.args)
			Expect(code).To(Equal(command.ExitOK), test.args)
		}
		_, out, _ := lanyard(ctx, "restart", "deployment/outdated", "--namespace", "by-name", "--dry-run=server")
		Expect(out).To(ContainSubstring("restarted (server dry run)"))
		code, _, errOut := lanyard(ctx, "restart", "deployment/nope", "--namespace", "by-name", "--yes")
		Expect(errOut).To(ContainSubstring(`deployments.apps "nope" not found`))
		Expect(code).To(Equal(command.ExitFailed))
		code, _, _ = lanyard(ctx, "restart", "deployment/outdated", "--namespace", "by-name", "--yes", "--timeout", "1ms")
		Expect(code).To(Equal(command.ExitFound)) // no controller makes its pods available
		for name, want := range map[string]bool{"outdated": true, "also-outdated": false, "unused": false} {
			deployment, err := env.client.AppsV1().Deployments("by-name").Get(ctx, name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			_, restarted := deployment.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]
			Expect(restarted).To(Equal(want), name)
		}
	})

	It("needs a selection", func(ctx SpecContext) {
		code, _, errOut := lanyard(ctx, "restart")
		Expect(errOut).To(HavePrefix("error: no workload is selected: write TYPE/NAME, --selector or --stale\n"))
		Expect(code).To(Equal(command.ExitFailed))
	})
})
