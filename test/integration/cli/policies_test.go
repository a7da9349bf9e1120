// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// resourceOf are the resources of the policies' kinds.
var resourceOf = map[string]string{
	"MutatingAdmissionPolicy": "mutatingadmissionpolicies", "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
	"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}

// applyPolicies creates the policies of a text, as kubectl apply does.
func applyPolicies(ctx context.Context, client dynamic.Interface, text string) {
	GinkgoHelper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		resource := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resourceOf[object.GetKind()]}
		_, err := client.Resource(resource).Create(ctx, object, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
}

// deletePolicies deletes the policies whose names begin with the prefix.
func deletePolicies(ctx context.Context, client dynamic.Interface, prefix string) {
	GinkgoHelper()
	for _, resource := range resourceOf {
		resource := client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
		list, err := resource.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].GetName(), prefix) {
				Expect(resource.Delete(ctx, list.Items[i].GetName(), metav1.DeleteOptions{})).To(Succeed())
			}
		}
	}
}

// This is a separate cluster in which only policies inject, with other settings than the defaults.
var _ = Describe("an installation by policies", Ordered, func() {
	var (
		kubeconfig, config string
		plane              *controlplane.ControlPlane
		client             *kubernetes.Clientset
		policies           dynamic.Interface
	)
	run := func(ctx context.Context, heading string, code int, args ...string) {
		GinkgoHelper()
		got, out, errOut := lanyardAs(ctx, kubeconfig, "", args...)
		Expect(got).To(Equal(code), out+errOut)
		expectGolden(heading, "$ lanyard "+strings.Join(args, " ")+"\n"+out+errOut)
	}
	BeforeAll(func(ctx SpecContext) {
		if server, err := version.ParseGeneric(env.plane.Version()); err != nil || !server.AtLeast(version.MajorMinor(1, 36)) {
			Skip("not for Kubernetes " + env.plane.Version())
		}
		var err error
		plane, err = controlplane.Start(ctx, controlplane.Options{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return plane.Stop() })
		kubeconfig = filepath.Join(GinkgoT().TempDir(), "admin")
		Expect(plane.Kubeconfig(kubeconfig)).To(Succeed())
		client, err = kubernetes.NewForConfig(plane.Config())
		Expect(err).NotTo(HaveOccurred())
		policies, err = dynamic.NewForConfig(plane.Config())
		Expect(err).NotTo(HaveOccurred())
		config = filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(config, []byte("azure-default-tenant-id: contoso.onmicrosoft.com\n"), 0o600)).To(Succeed())
	})

	It("is told from no installation", func(ctx SpecContext) {
		run(ctx, "policies-none", 1, "check")
		code, out, errOut := lanyardAs(ctx, kubeconfig, "", "policies", "--diff")
		Expect(code).To(Equal(1))
		Expect(out).To(BeEmpty())
		Expect(errOut).To(Equal("error: none of these policies is installed. To install them: lanyard policies | kubectl apply -f -, with the same flags\n"))
	})

	It("is installed, and the same as the generated one", func(ctx SpecContext) {
		code, text, errOut := lanyardAs(ctx, kubeconfig, "", "policies", "--config", config, "--providers", "aws,azure")
		Expect(code).To(Equal(0), errOut)
		Expect(plane.CreateNamespace(ctx, "shop")).To(Succeed())
		account := serviceAccount("cart", map[string]string{"lanyard.dev/azure-client-id": "11111111-2222-3333-4444-555555555555"})
		account.AutomountServiceAccountToken = new(bool)
		account.Labels = map[string]string{"lanyard.dev/identity": "enabled"}
		_, err := client.CoreV1().ServiceAccounts("shop").Create(ctx, account, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = client.CoreV1().ServiceAccounts("shop").Create(ctx, serviceAccount("early", account.Annotations), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = client.CoreV1().Pods("shop").Create(ctx, newPod("before", "cart"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		applyPolicies(ctx, policies, text)
		run(ctx, "policies-diff-same", 0, "policies", "--config", config, "--providers", "aws,azure", "--diff")
		Eventually(ctx, func(ctx context.Context) (*corev1.Pod, error) {
			return client.CoreV1().Pods("shop").Create(ctx, newPod("probe", "cart"), dryRun)
		}).Should(HaveField("ObjectMeta.Annotations", HaveKey("lanyard.dev/injected")))
		_, err = client.CoreV1().Pods("shop").Create(ctx, newPod("after", "cart"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("labels ServiceAccounts that are older", func(ctx SpecContext) {
		code, out, _ := lanyardAs(ctx, kubeconfig, "", "check")
		Expect(code).To(Equal(1))
		Expect(out).To(ContainSubstring("the label is missing on 1 ServiceAccount from before the policies, for example shop/early"))
		code, out, _ = lanyardAs(ctx, kubeconfig, "", "label", "serviceaccounts", "--all-namespaces", "--output", "name")
		Expect(code).To(Equal(0))
		Expect(out).To(Equal("serviceaccount/early\n"))
	})

	It("is checked", func(ctx SpecContext) { run(ctx, "policies-check", 0, "check") })

	It("is read with the ClusterRole of deploy/policies, and never missed without it", func(ctx SpecContext) {
		file, err := os.ReadFile("../../../deploy/policies/view.yaml")
		Expect(err).NotTo(HaveOccurred())
		view := &rbacv1.ClusterRole{}
		Expect(yaml.UnmarshalStrict(file, view)).To(Succeed())
		less := view.DeepCopy()
		less.Name, less.Rules[0].Resources = "less", []string{"mutatingwebhookconfigurations"}
		for role, text := range map[*rbacv1.ClusterRole]string{view: "pods are injected by policies lanyard-inject-pods", less: "mutatingadmissionpolicies"} {
			_, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role.Name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			user, err := plane.User(role.Name)
			Expect(err).NotTo(HaveOccurred())
			path := filepath.Join(GinkgoT().TempDir(), role.Name)
			Expect(controlplane.WriteKubeconfig(path, user)).To(Succeed())
			Eventually(ctx, func(ctx context.Context) string {
				_, out, _ := lanyardAs(ctx, path, "", "check")
				return out
			}).Should(And(ContainSubstring(text), Not(ContainSubstring("not installed"))))
		}
	})

	It("has pods that are current or not", func(ctx SpecContext) {
		run(ctx, "policies-status", 0, "status", "--all-namespaces")
		run(ctx, "policies-status as JSON", 0, "status", "--namespace", "shop", "--output", "json")
	})

	It("has the settings and the ServiceAccounts for manifests", func(ctx SpecContext) {
		workload := manifests[strings.LastIndex(manifests, "---\n")+len("---\n"):]
		code, out, errOut := lanyardAs(ctx, kubeconfig, workload, "inject", "-f", "-")
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(Equal(workload))
		Expect(errOut).To(Equal("unchanged: deployment/web in the namespace shop: serviceaccount_not_found: the manifests do not have its ServiceAccount\n"))
		code, out, errOut = lanyardAs(ctx, kubeconfig, workload, "inject", "-f", "-", "--cluster")
		Expect(errOut).To(BeEmpty())
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(And(ContainSubstring("value: 11111111-2222-3333-4444-555555555555\n"), ContainSubstring("value: contoso.onmicrosoft.com\n")))
		mistyped := strings.ReplaceAll(workload, "serviceAccountName: cart", "serviceAccountName: crat")
		code, out, errOut = lanyardAs(ctx, kubeconfig, mistyped, "inject", "-f", "-", "--cluster")
		Expect(code).To(Equal(command.ExitFound))
		Expect(out).To(BeEmpty())
		Expect(errOut).To(And(ContainSubstring("neither the manifests nor the cluster have its ServiceAccount crat: add it, or correct serviceAccountName\n"), ContainSubstring("nothing was written\n")))
	})

	It("is explained", func(ctx SpecContext) {
		run(ctx, "policies-explain", 1, "explain", "serviceaccount/cart", "--namespace", "shop")
		run(ctx, "policies-explain-pod", 1, "explain", "pod/before", "--namespace", "shop")
	})

	It("explains a denial of the policies as one of Lanyard", func(ctx SpecContext) {
		waiting := serviceAccount("waiting", nil)
		waiting.Labels = map[string]string{"lanyard.dev/identity": "required"}
		_, err := client.CoreV1().ServiceAccounts("shop").Create(ctx, waiting, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(ctx context.Context) string {
			_, out, _ := lanyardAs(ctx, kubeconfig, "", "explain", "serviceaccount/waiting", "--namespace", "shop")
			return out
		}).Should(ContainSubstring("new pods: denied (identity_required)"))
	})

	It("has the settings of the policies for manifests", func(ctx SpecContext) {
		manifest := filepath.Join(GinkgoT().TempDir(), "manifest.yaml")
		Expect(os.WriteFile(manifest, []byte("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: cart\n  namespace: shop\n  annotations:\n"+
			"    lanyard.dev/azure-client-id: 11111111-2222-3333-4444-555555555555\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: shop\n"+
			"spec:\n  serviceAccountName: cart\n  containers:\n  - name: main\n    image: image\n"), 0o600)).To(Succeed())
		run(ctx, "policies-inject", 0, "inject", "--cluster", "--filename", manifest)
	})

	It("differs from other settings", func(ctx SpecContext) {
		Expect(os.WriteFile(config, []byte("azure-default-tenant-id: fabrikam.onmicrosoft.com\ntoken-expiration-seconds: 7200\n"), 0o600)).To(Succeed())
		run(ctx, "policies-diff", 1, "policies", "--config", config, "--providers", "aws,azure", "--diff")
		code, out, errOut := lanyardAs(ctx, kubeconfig, "", "policies", "--config", config, "--diff")
		Expect(code).To(Equal(1))
		Expect(out).To(BeEmpty())
		Expect(errOut).To(Equal("error: the installed policies were made with --providers (aws, azure): add the flag, or --providers= to compare without it\n"))
	})

	It("fails the check without a binding", func(ctx SpecContext) {
		Expect(client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(ctx, "lanyard-inject-pods", metav1.DeleteOptions{})).To(Succeed())
		_, out, _ := lanyardAs(ctx, kubeconfig, "", "check")
		Expect(out).To(ContainSubstring("MutatingAdmissionPolicy lanyard-inject-pods has no effect: it has no binding"))
	})

	It("is replaced by compiled policies, and compared with them", func(ctx SpecContext) {
		deletePolicies(ctx, policies, "lanyard-")
		code, text, errOut := lanyardAs(ctx, kubeconfig, "", "policies", "--config", config, "--cluster")
		Expect(code).To(Equal(0), errOut)
		Expect(text).To(And(ContainSubstring("'shop/cart': {"), ContainSubstring("'shop/early': {")))
		applyPolicies(ctx, policies, text)
		run(ctx, "compiled-diff-same", 0, "policies", "--config", config, "--cluster", "--diff")
		Eventually(ctx, func(ctx context.Context) (string, error) {
			pod, err := client.CoreV1().Pods("shop").Create(ctx, newPod("probe", "cart"), dryRun)
			return pod.Annotations["lanyard.dev/injected"], err
		}).Should(Equal("azure"))
		patch := []byte(`{"metadata":{"annotations":{"lanyard.dev/azure-client-id":"99999999-2222-3333-4444-555555555555"}}}`)
		_, err := client.CoreV1().ServiceAccounts("shop").Patch(ctx, "early", types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		run(ctx, "compiled-diff", 1, "policies", "--config", config, "--cluster", "--diff")
		run(ctx, "compiled-check", 0, "check")
		uncompiled := serviceAccount("bakery", map[string]string{"lanyard.dev/azure-client-id": "11111111-2222-3333-4444-555555555555"})
		_, err = client.CoreV1().ServiceAccounts("shop").Create(ctx, uncompiled, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		// The API server may evaluate the deleted policies for a moment. They know every ServiceAccount.
		Eventually(ctx, func(ctx context.Context) map[string]string {
			pod, _ := client.CoreV1().Pods("shop").Create(ctx, newPod("probe", "bakery"), dryRun) // or it is denied
			return pod.GetAnnotations()
		}).ShouldNot(HaveKey("lanyard.dev/injected"))
		run(ctx, "compiled-check-uncompiled", 1, "check")
		Expect(client.CoreV1().ServiceAccounts("shop").Delete(ctx, "bakery", metav1.DeleteOptions{})).To(Succeed())
	})

	// The annotations in the cluster do not matter.
	It("is checked with the identities of manifests", func(ctx SpecContext) {
		for _, name := range []string{"cart", "early"} {
			Expect(client.CoreV1().ServiceAccounts("shop").Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
			account := serviceAccount(name, nil)
			account.AutomountServiceAccountToken = new(bool)
			_, err := client.CoreV1().ServiceAccounts("shop").Create(ctx, account, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		run(ctx, "compiled-check-manifests", 0, "check")
		run(ctx, "compiled-check-one", 0, "check", "--service-account", "cart", "--namespace", "shop")
	})
})

// Next to the webhook, in the cluster of the other specs.
var _ = Describe("policies next to the webhook", Serial, func() {
	It("are stated with it", func(ctx SpecContext) {
		if server, err := version.ParseGeneric(env.plane.Version()); err != nil || !server.AtLeast(version.MajorMinor(1, 36)) {
			Skip("not for Kubernetes " + env.plane.Version())
		}
		client, err := dynamic.NewForConfig(env.plane.Config())
		Expect(err).NotTo(HaveOccurred())
		code, text, errOut := lanyard(ctx, "policies", "--name", "second", "--providers", "aws")
		Expect(code).To(Equal(0), errOut)
		// The API server reads policies once in a second. They deny an annotation of another
		// provider, which the webhook knows.
		writeAzure := func(ctx context.Context) error {
			account := serviceAccount("denied", map[string]string{"lanyard.dev/azure-client-id": "11111111-2222-3333-4444-555555555555"})
			_, err := env.client.CoreV1().ServiceAccounts("shop").Create(ctx, account, dryRun)
			return err
		}
		DeferCleanup(func(ctx SpecContext) {
			deletePolicies(ctx, client, "second-")
			Eventually(ctx, writeAzure).Should(Succeed())
		})
		applyPolicies(ctx, client, text)
		Eventually(ctx, writeAzure).Should(MatchError(ContainSubstring("second-deny-serviceaccounts")))
		const both = "webhook lanyard and policies second-inject-pods"
		_, out, _ := lanyard(ctx, "check")
		Expect(out).To(ContainSubstring("pods are injected by " + both))
		_, out, _ = lanyard(ctx, "status", "--namespace", "shop")
		Expect(out).To(ContainSubstring("injected by " + both))
		_, out, _ = lanyard(ctx, "explain", "serviceaccount/cart", "--namespace", "shop")
		Expect(out).To(ContainSubstring(both))
	})
})
