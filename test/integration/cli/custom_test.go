// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// customConfig is the configuration file of the webhook: it has a custom provider.
const customConfig = examples + "/alibaba.yaml"

const (
	noUnlabelled  = "every ServiceAccount that needs credentials has the label\n"
	unreadBecause = "warning: serviceaccount custom/oss has the annotation lanyard.dev/alibaba-role-arn, which Lanyard only reads with settings of the webhook. " +
		"The settings could not be read: "
)

// moveIntoCluster registers the webhook for pods behind a Service, with objects as in
// deploy/, until the spec ends. It is never called, because nothing runs behind the
// Service.
func moveIntoCluster(ctx context.Context, text string) {
	GinkgoHelper()
	const namespace = "lanyard-system"
	meta := metav1.ObjectMeta{Name: "webhook", Namespace: namespace}
	labels := map[string]string{"app": "webhook"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("", "").Spec}
	template.Spec.Containers[0].Args = []string{"--config=/config/config.yaml"}
	template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}}
	template.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "webhook"}},
	}}}
	_, err := env.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"config.yaml": text}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = env.client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = env.client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	outside := setClient(ctx, admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "webhook"}})
	DeferCleanup(func(ctx SpecContext) {
		setClient(ctx, outside)
		Expect(env.client.CoreV1().ConfigMaps(namespace).Delete(ctx, "webhook", metav1.DeleteOptions{})).To(Succeed())
		Expect(env.client.CoreV1().Services(namespace).Delete(ctx, "webhook", metav1.DeleteOptions{})).To(Succeed())
		Expect(env.client.AppsV1().Deployments(namespace).Delete(ctx, "webhook", metav1.DeleteOptions{})).To(Succeed())
		expectInjected(ctx, "shop", "cart", "aws")
	})
}

// setClient sets where the API server finds the webhook for pods, and returns where it
// was before.
func setClient(ctx context.Context, config admissionregistrationv1.WebhookClientConfig) (before admissionregistrationv1.WebhookClientConfig) {
	GinkgoHelper()
	api := env.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	Eventually(ctx, func(ctx context.Context) error {
		configuration, err := api.Get(ctx, "lanyard", metav1.GetOptions{})
		if err != nil {
			return err
		}
		before = configuration.Webhooks[0].ClientConfig
		configuration.Webhooks[0].ClientConfig = config
		_, err = api.Update(ctx, configuration, metav1.UpdateOptions{})
		return err
	}).Should(Succeed())
	return before
}

// developer returns the kubeconfig of a user who may only read and create things in a
// namespace.
func developer(ctx context.Context, name, namespace string) string {
	GinkgoHelper()
	api := env.client.RbacV1()
	_, err := api.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create"}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = api.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	waitToList(ctx, name, namespace, "", "serviceaccounts")
	return user(name)
}

const examples = "../../../examples/providers"

var _ = Describe("custom providers", Serial, Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "custom")
		newServiceAccount(ctx, "custom", "oss", map[string]string{"lanyard.dev/alibaba-role-arn": "acs:ram::1234567890123456:role/oss"})
		unlabel(ctx, "custom", "oss")
		expectInjected(ctx, "custom", "oss", "alibaba")
		_, err := env.client.CoreV1().Pods("custom").Create(ctx, newPod("oss-0", "oss"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		// Other specs look at all ServiceAccounts, and would get a warning.
		DeferCleanup(func(ctx SpecContext) error {
			return env.client.CoreV1().ServiceAccounts("custom").Delete(ctx, "oss", metav1.DeleteOptions{})
		})
	})

	It("are those of --config", func(ctx SpecContext) {
		expectOutputs(ctx, "custom-label", command.ExitOK, "label", "sa", "--namespace", "custom", "--dry-run=client", "--config", customConfig)
		expectOutputs(ctx, "custom-status", command.ExitOK, "status", "--namespace", "custom", "--config", customConfig)
		expectOutputs(ctx, "custom-explain", command.ExitFound, "explain", "pod/oss-0", "--namespace", "custom", "--config", customConfig)
		code, _, errOut := lanyard(ctx, "check", "--config", customConfig)
		Expect(errOut).To(BeEmpty())
		Expect(code).To(BeNumerically("<", command.ExitFailed)) // it depends on the objects of other specs
		code, out, errOut := lanyard(ctx, "token", "sa/oss", "--namespace", "custom", "--for", "alibaba", "--config", customConfig)
		Expect(out).To(ContainSubstring("sts.aliyuncs.com"), errOut)
		Expect(code).To(Equal(command.ExitOK))
	})

	DescribeTable("are warned of if they cannot be read", func(ctx SpecContext, args ...string) {
		_, out, errOut := lanyard(ctx, append(args, "--namespace", "custom")...)
		Expect(errOut).To(HavePrefix(unreadBecause + "the webhook runs outside the cluster. Pass the webhook's configuration file with --config.\n"))
		Expect(out).NotTo(ContainSubstring("acs:ram"))
	},
		Entry("by label", "label", "sa", "--dry-run"),
		Entry("by status", "status"),
		Entry("by explain", "explain", "sa/oss"),
		Entry("by check", "check"),
		Entry("by trust", "trust", "azure", "sa/oss"),
	)

	It("are no matter if no ServiceAccount may have one", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "label", "sa", "--namespace", "shop", "--dry-run")
		Expect(errOut).To(BeEmpty())
		Expect(out).To(Equal(noUnlabelled))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("are read in the cluster", func(ctx SpecContext) {
		text, err := os.ReadFile(customConfig)
		Expect(err).NotTo(HaveOccurred())
		moveIntoCluster(ctx, string(text))
		expectOutput(ctx, env.kubeconfig, "custom-label-in-cluster", command.ExitOK, BeEmpty(), "label", "sa", "--namespace", "custom", "--dry-run")
	})

	It("and their defaults are known to trust, inject and token", func(ctx SpecContext) {
		text, err := os.ReadFile(customConfig)
		Expect(err).NotTo(HaveOccurred())
		const provider = "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/cluster"
		moveIntoCluster(ctx, string(text)+"gcp-default-workload-identity-provider: "+provider+"\ntoken-expiration-seconds: 7200\naws-role-arn-prefix: 'arn:aws:iam::111122223333:role/'\n")
		code, out, errOut := lanyard(ctx, "trust", "gcp", "sa/oss", "--namespace", "custom", "-o", "terraform")
		Expect(errOut).NotTo(ContainSubstring("could not be read"))
		Expect(out).To(ContainSubstring(`workload_identity_pool_provider_id = "cluster"`), errOut)
		Expect(code).To(Equal(command.ExitOK))
		code, out, errOut = lanyard(ctx, "trust", "aws", "sa/oss", "--namespace", "custom", "--role-arn", "cart")
		Expect(out).To(ContainSubstring("cart"), errOut)
		Expect(code).To(Equal(command.ExitOK))
		code, out, errOut = lanyard(ctx, "token", "sa/oss", "--namespace", "custom", "--for", "other")
		Expect(out).To(ContainSubstring("after 2h0m0s"), errOut)
		Expect(code).To(Equal(command.ExitOK))

		const manifests = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: oss\n  annotations:\n    lanyard.dev/alibaba-role-arn: acs:ram::1234567890123456:role/oss\n    lanyard.dev/alibaba-oidc-provider-arn: acs:ram::1234567890123456:oidc-provider/cluster\n"
		code, out, errOut = lanyardAs(ctx, env.kubeconfig, manifests, "inject", "-f", "-", "--cluster")
		Expect(errOut).To(BeEmpty())
		Expect(out).To(ContainSubstring("lanyard.dev/identity"))
		Expect(code).To(Equal(command.ExitOK))
		code, _, errOut = lanyardAs(ctx, env.kubeconfig, manifests, "inject", "-f", "-", "--cluster", "--adopt", "eks")
		Expect(errOut).To(HavePrefix("error: --cluster cannot be used with --adopt\n"))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("are not guessed by inject --cluster", func(ctx SpecContext) {
		code, _, errOut := lanyardAs(ctx, env.kubeconfig, "", "inject", "-f", "-", "--cluster")
		Expect(errOut).To(HavePrefix("error: read the settings of the webhook: the webhook runs outside the cluster"))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("are warned of if the file in the cluster is wrong", func(ctx SpecContext) {
		moveIntoCluster(ctx, "v: 1\nproviders: {}\n")
		code, out, errOut := lanyard(ctx, "label", "sa", "--namespace", "custom", "--dry-run")
		Expect(errOut).To(HavePrefix(unreadBecause + "deployment lanyard-system/webhook: --config /config/config.yaml: line 2: cannot unmarshal !!map"))
		Expect(out).To(Equal(noUnlabelled))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("are warned of if the user may not read them", func(ctx SpecContext) {
		code, _, errOut := lanyardAs(ctx, developer(ctx, "developer", "custom"), "", "explain", "sa/oss", "--namespace", "custom")
		Expect(errOut).To(HavePrefix(unreadBecause + "list mutatingwebhookconfigurations: mutatingwebhookconfigurations.admissionregistration.k8s.io is forbidden: "))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("need a correct --config", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "label", "sa", "--config", "/does/not/exist")
		Expect(errOut).To(HavePrefix("error: --config: open /does/not/exist: "))
		Expect(code).To(Equal(command.ExitFailed))
		Expect(out).To(BeEmpty())
		file := filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(file, []byte("providers: {}\n"), 0o600)).To(Succeed())
		code, out, errOut = lanyard(ctx, "label", "sa", "--config", file)
		Expect(errOut).To(HavePrefix("error: --config " + file + ": line 1: cannot unmarshal !!map"))
		Expect(code).To(Equal(command.ExitFailed))
		Expect(out).To(BeEmpty())
	})
})
