// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// newDeployment creates a Deployment and the ReplicaSet that a controller would
// create for it.
func newDeployment(ctx context.Context, namespace, name, account string) *appsv1.ReplicaSet {
	GinkgoHelper()
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("", account).Spec}
	template.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "image"}}
	deployment, err := env.client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	set, err := env.client.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-1", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec:       appsv1.ReplicaSetSpec{Selector: deployment.Spec.Selector, Template: template},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return set
}

// newReplica creates a pod of a ReplicaSet, as the controller would.
func newReplica(ctx context.Context, set *appsv1.ReplicaSet, name string, annotations map[string]string) {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: set.Spec.Template.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: set.Spec.Template.Spec,
	}
	_, err := env.client.CoreV1().Pods(set.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// reannotate changes the identity of a ServiceAccount.
func reannotate(ctx context.Context, namespace, name string, annotations map[string]string) {
	GinkgoHelper()
	api := env.client.CoreV1().ServiceAccounts(namespace)
	account, err := api.Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	account.Annotations = annotations
	_, err = api.Update(ctx, account, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("explain", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "explained")
		newServiceAccount(ctx, "explained", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		newServiceAccount(ctx, "explained", "plain", nil)
		set := newDeployment(ctx, "explained", "cart", "cart")
		newReplica(ctx, set, "cart-1-old", nil)
		// The timestamps of objects have a precision of one second.
		created := time.Now().Truncate(time.Second)
		Eventually(func() time.Time { return time.Now().Truncate(time.Second) }).Should(BeTemporally(">", created))
		reannotate(ctx, "explained", "cart", map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/azure-client-id": "11111111-2222-3333-4444-555555555555"})
		Eventually(ctx, func(ctx context.Context) (map[string]string, error) {
			pod, err := env.client.CoreV1().Pods("explained").Create(ctx, newPod("x", "cart"), dryRun)
			if err != nil {
				return nil, err
			}
			return pod.Annotations, nil
		}).Should(HaveKeyWithValue("lanyard.dev/injected", "aws,azure"))
	})

	It("explains a ServiceAccount with an identity", func(ctx SpecContext) {
		expectOutputs(ctx, "explain-serviceaccount", command.ExitFound, "explain", "serviceaccount", "cart", "--namespace", "explained")
	})

	It("explains a workload", func(ctx SpecContext) {
		expectOutputs(ctx, "explain-deployment", command.ExitFound, "explain", "deploy/cart", "--namespace", "explained")
	})

	It("explains a pod with an old identity", func(ctx SpecContext) {
		expectOutputs(ctx, "explain-pod-stale", command.ExitFound, "explain", "pod", "cart-1-old", "--namespace", "explained")
	})

	It("explains a pod of a ServiceAccount without an identity", func(ctx SpecContext) {
		_, err := env.client.CoreV1().Pods("explained").Create(ctx, newPod("plain", "plain"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		expectOutputs(ctx, "explain-pod-no-identity", command.ExitOK, "explain", "pod", "plain", "--namespace", "explained")
	})

	It("explains a pod without an owner by what it was", func(ctx SpecContext) {
		_, err := env.client.CoreV1().Pods("explained").Create(ctx, newPod("alone", "cart"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		code, out, _ := lanyard(ctx, "explain", "pod", "alone", "--namespace", "explained")
		Expect(out).To(ContainSubstring("this pod: current"))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("reports a container that points to its own credentials", func(ctx SpecContext) {
		pod := newPod("own", "cart")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "/own"}}
		_, err := env.client.CoreV1().PodTemplates("explained").Create(ctx, &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: "own"}, Template: corev1.PodTemplateSpec{Spec: pod.Spec},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, out, _ := lanyard(ctx, "explain", "podtemplate/own", "--namespace", "explained")
		Expect(out).To(MatchRegexp(`main +container +yes +azure`))
		// The settings of the webhook cannot be read here, so the webhook's own warning is shown.
		Expect(out).To(MatchRegexp(`lanyard: environment_taken: container "main": it sets\s+AWS_WEB_IDENTITY_TOKEN_FILE`))
	})

	It("names the namespace that opts out", func(ctx SpecContext) {
		_, err := env.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "opted-out", Labels: map[string]string{"lanyard.dev/inject": "disabled"}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		newServiceAccount(ctx, "opted-out", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		code, out, _ := lanyard(ctx, "explain", "sa/cart", "--namespace", "opted-out")
		Expect(out).To(ContainSubstring("guard               excluded\n\nnew pods: excluded\n  Lanyard is not called for the namespace: it has the label lanyard.dev/inject=disabled\n"))
		Expect(code).To(Equal(command.ExitFound))
	})

	It("names an identity that the namespace does not allow", func(ctx SpecContext) {
		newNamespace(ctx, "limited")
		newServiceAccount(ctx, "limited", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		_, err := env.client.CoreV1().Namespaces().Patch(ctx, "limited", types.MergePatchType, []byte(`{"metadata":{"annotations":{"lanyard.dev/allowed-identities":"-"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(ctx context.Context) string {
			_, out, _ := lanyard(ctx, "explain", "sa/cart", "--namespace", "limited")
			return out
		}).Should(And(ContainSubstring("allowed identities  -\n"), ContainSubstring("new pods: denied (identity_not_allowed)")))
	})

	It("explains a ServiceAccount to a user with the role view in one namespace", func(ctx SpecContext) {
		newServiceAccount(ctx, "explained", "web", map[string]string{"lanyard.dev/aws-role-arn": role})
		bind(ctx, "explained", "view", "on-call")
		kubeconfig := user("on-call")
		expectOutputsAs(ctx, kubeconfig, "explain-view", command.ExitFailed, HavePrefix("error: could not determine the credentials of a new pod: you may not create pods"), "explain", "sa", "web", "--namespace", "explained")
		_, out, _ := lanyardAs(ctx, kubeconfig, "", "explain", "sa", "web", "--namespace", "explained")
		Expect(out).NotTo(ContainSubstring("denied"))
	})

	// The user cannot read that the webhook has a default tenant.
	It("does not say that a pod is denied for a setting that was not read", func(ctx SpecContext) {
		bind(ctx, "explained", "view", "on-call-2")
		code, out, errOut := lanyardAs(ctx, user("on-call-2"), "", "explain", "pod", "cart-1-old", "--namespace", "explained")
		Expect(out).To(And(ContainSubstring("new pods: unknown\n"), ContainSubstring("this pod: unknown\n"), ContainSubstring("and the settings of the webhook could not be read")))
		Expect(errOut).To(HavePrefix("error: could not determine the credentials of a new pod: you may not create pods in the namespace explained, and the settings of the webhook could not be read: "))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("explains a pod to a user who may read everything", func(ctx SpecContext) {
		config := filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(config, []byte("azure-default-tenant-id: contoso.onmicrosoft.com\n"), 0o600)).To(Succeed())
		expectOutputsAs(ctx, reader(ctx, "explain-reader"), "explain-reader", command.ExitFound, BeEmpty(), "explain", "pod", "cart-1-old", "--namespace", "explained", "--config", config)
	})

	It("cannot look without any right", func(ctx SpecContext) {
		stranger := user("stranger")
		code, out, errOut := lanyardAs(ctx, stranger, "", "explain", "sa/cart", "--namespace", "explained")
		Expect(out).To(And(
			ContainSubstring("new pods: unknown\n"), ContainSubstring("\n  ? the dry run of a pod: you may not create pods in the namespace explained\n"),
			ContainSubstring("\n  ? the namespaces that Lanyard is called for, and the guard: you may not list mutatingwebhookconfigurations.admissionregistration.k8s.io\n"), Not(ContainSubstring("denied"))))
		Expect(errOut).To(Equal("error: could not determine the credentials of a new pod: the ServiceAccount of the pod was not read\n"))
		Expect(code).To(Equal(command.ExitFailed))
		code, _, errOut = lanyardAs(ctx, stranger, "", "explain", "pod/cart-1-old", "--namespace", "explained")
		Expect(errOut).To(HavePrefix("error: pod/cart-1-old in the namespace explained: pods \"cart-1-old\" is forbidden: "))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("explains a ServiceAccount that waits for its identity", func(ctx SpecContext) {
		_, err := env.client.CoreV1().ServiceAccounts("explained").Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "late", Labels: map[string]string{"lanyard.dev/identity": "required"}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(ctx context.Context) error {
			_, err := env.client.CoreV1().Pods("explained").Create(ctx, newPod("late", "late"), dryRun)
			return err
		}).Should(MatchError(ContainSubstring("lanyard: identity_required: ")))
		expectOutputs(ctx, "explain-required", command.ExitFound, "explain", "sa/late", "--namespace", "explained")
	})

	It("has the advice for a Job", func(ctx SpecContext) {
		job, err := env.client.BatchV1().Jobs("explained").Create(ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "load"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: func() corev1.PodSpec {
				spec := newPod("", "cart").Spec
				spec.RestartPolicy = corev1.RestartPolicyNever
				return spec
			}()}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod := newPod("load-old", "cart")
		pod.Annotations = map[string]string{"lanyard.dev/inject": "false"}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		_, err = env.client.CoreV1().Pods("explained").Create(ctx, pod, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = env.client.CoreV1().Pods("explained").Patch(ctx, "load-old", types.MergePatchType, []byte(`{"metadata":{"annotations":{"lanyard.dev/inject":null}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, out, _ := lanyard(ctx, "explain", "pod/load-old", "--namespace", "explained")
		Expect(out).To(And(ContainSubstring("this pod: without\n"), ContainSubstring("-> A Job cannot be restarted. Delete it, and create it again from its manifest: kubectl delete job/load --namespace explained\n")))

		cron, err := env.client.BatchV1().CronJobs("explained").Create(ctx, &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
			Spec:       batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: job.Spec.Template}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
		_, err = env.client.BatchV1().Jobs("explained").Update(ctx, job, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, out, _ = lanyard(ctx, "explain", "job/load", "--namespace", "explained")
		Expect(out).To(ContainSubstring("\n    The next Job of cronjob/nightly gets the credentials. To start a Job now: kubectl create job nightly-again --from=cronjob/nightly --namespace explained\n"))
	})

	It("reports a ServiceAccount that does not exist", func(ctx SpecContext) {
		code, _, errOut := lanyard(ctx, "explain", "sa/none", "--namespace", "explained")
		Expect(errOut).To(Equal("error: serviceaccount explained/none: serviceaccounts \"none\" not found\n"))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("reports a workload whose ServiceAccount does not exist", func(ctx SpecContext) {
		newDeployment(ctx, "explained", "lost", "nobody")
		code, out, _ := lanyard(ctx, "explain", "deploy/lost", "--namespace", "explained")
		Expect(out).To(ContainSubstring("new pods: denied (serviceaccount_not_found)"))
		Expect(code).To(Equal(command.ExitFound))
	})

	It("is for objects that make pods", func(ctx SpecContext) {
		for args, want := range map[string]string{
			"service/kubernetes": "error: service/kubernetes makes no pods: name a ServiceAccount, a pod or a workload such as a deployment\n",
			"namespace/shop":     "error: namespace/shop has no namespace: name a ServiceAccount, a pod or a workload\n",
			"cart":               "error: cart has no name: write TYPE/NAME or TYPE NAME\n",
		} {
			code, _, errOut := lanyard(ctx, "explain", args, "--namespace", "default")
			Expect(errOut).To(HavePrefix(want))
			Expect(code).To(Equal(command.ExitFailed))
		}
	})

	It("completes the names that are in the cluster", func(ctx SpecContext) {
		code, out, _ := lanyard(ctx, "__complete", "explain", "--namespace", "explained", "deployment/")
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(HavePrefix("deployment/cart\n"))
		_, out, _ = lanyard(ctx, "__complete", "check", "--namespace", "expl")
		Expect(out).To(HavePrefix("explained\n"))
	})
})
