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
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// bindCluster binds a user to ClusterRoles in the whole cluster.
func bindCluster(ctx context.Context, name string, roles ...string) {
	GinkgoHelper()
	for _, role := range roles {
		_, err := env.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + strings.ReplaceAll(role, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
}

// count returns the number of lines of a report that begin with a mark.
func count(out, mark string) int { return strings.Count(out, "\n  "+mark+" ") }

var _ = Describe("check by users with few rights", Serial, Ordered, func() {
	check := func(ctx context.Context, kubeconfig string, args ...string) (code int, out string) {
		GinkgoHelper()
		code, out, errOut := lanyardAs(ctx, kubeconfig, "", append([]string{"check", "--config", adopting("")}, args...)...)
		if code == command.ExitFailed {
			Expect(errOut).To(HavePrefix("error: checks that could not run: "))
			Expect(out).To(ContainSubstring("\nno check failed, but not all could run, skipped: "))
		} else {
			Expect(errOut).To(BeEmpty())
		}
		return code, out
	}

	It("does not call an installation right that it could not look at", func(ctx SpecContext) {
		deletePods(ctx)
		bindCluster(ctx, "viewer", "system:aggregate-to-view")
		waitToList(ctx, "viewer", "", "", "serviceaccounts")
		notes := HavePrefix("error: checks that could not run: ")
		expectOutputsAs(ctx, user("viewer"), "check-view", command.ExitFailed, notes, "check", "--namespace", "shop", "--service-account", "cart", "--config", adopting(""))
	})

	It("reads everything but the pods of others with lanyard-view", func(ctx SpecContext) {
		bindCluster(ctx, "reader-of-lanyard", "system:aggregate-to-view", "lanyard-view")
		waitToList(ctx, "reader-of-lanyard", "", "", "serviceaccounts")
		waitToList(ctx, "reader-of-lanyard", "", "admissionregistration.k8s.io", "mutatingwebhookconfigurations")
		code, out := check(ctx, user("reader-of-lanyard"), "--namespace", "shop", "--service-account", "cart")
		Expect(code).To(Equal(command.ExitFailed))
		Expect(out).To(ContainSubstring("? could not determine whether the API server can call the webhook: you may not create pods in the namespace shop\n"))
		Expect(out).To(ContainSubstring("√ pods of ServiceAccount shop/cart get credentials: aws, from volume bound-sa-token (evaluated here, not by the cluster)\n"))
		Expect(count(out, "?")).To(Equal(1), out)
		Expect(count(out, "×")).To(BeZero(), out)
	})

	It("looks at one namespace with view in that namespace", func(ctx SpecContext) {
		newNamespace(ctx, "check-mine")
		newServiceAccount(ctx, "check-mine", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		bind(ctx, "check-mine", "view", "of-one-namespace")
		code, out := check(ctx, user("of-one-namespace"), "--namespace", "check-mine")
		Expect(code).To(Equal(command.ExitFailed))
		Expect(out).To(ContainSubstring("? webhook configurations cannot be read: you may not list mutatingwebhookconfigurations.admissionregistration.k8s.io; the replicas, the certificate, the guard and the fences were not checked\n"))
		Expect(out).To(ContainSubstring("√ every ServiceAccount in the namespace check-mine that needs credentials has the guard's label\n"))
		Expect(out).To(ContainSubstring("√ pods of ServiceAccount check-mine/cart get credentials: aws, from volume bound-sa-token (evaluated here"))
		Expect(count(out, "×")).To(BeZero(), out)
	})

	It("counts the pods that must be replaced", func(ctx SpecContext) {
		deletePods(ctx)
		newNamespace(ctx, "check-pods")
		newServiceAccount(ctx, "check-pods", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		newServiceAccount(ctx, "check-pods", "later", nil)
		for name, account := range map[string]string{"current": "cart", "early": "later", "out": "cart"} {
			pod := newPod(name, account)
			if name == "out" {
				pod.Annotations = map[string]string{"lanyard.dev/inject": "false"}
			}
			_, err := env.client.CoreV1().Pods("check-pods").Create(ctx, pod, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		DeferCleanup(deletePods)
		_, out := check(ctx, env.kubeconfig, "--namespace", "check-pods")
		Expect(out).To(ContainSubstring("\npods\n  √ every pod has the credentials that its ServiceAccount asks for\n"))
		for name, identity := range map[string]string{"cart": role + "2", "later": role} {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":%q}}}`, identity)
			_, err := env.client.CoreV1().ServiceAccounts("check-pods").Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		_, out = check(ctx, env.kubeconfig, "--namespace", "check-pods")
		Expect(out).To(ContainSubstring("‼ 2 pods must be replaced: 1 stale, 1 without credentials\n    Run: lanyard status --stale --all-namespaces\n"))
	})

	It("reports the ServiceAccount of the command line in every case", func(ctx SpecContext) {
		for _, name := range []string{"nobody-2", "viewer"} {
			code, out := check(ctx, user(name), "--namespace", "shop", "--service-account", "cart")
			Expect(code).To(Equal(command.ExitFailed))
			Expect(out).To(MatchRegexp(`\ndry run\n  [?√] .*ServiceAccount shop/cart`))
		}
		code, out := check(ctx, env.kubeconfig, "--namespace", "shop", "--service-account", "typo")
		Expect(code).To(Equal(command.ExitFound))
		Expect(out).To(ContainSubstring("× ServiceAccount shop/typo does not exist\n"))
	})

	It("has no names in a report for others", func(ctx SpecContext) {
		// The viewer may not read the settings of the webhook.
		for kubeconfig, text := range map[string]string{env.kubeconfig: "get credentials: aws", user("viewer"): "were not tested: "} {
			_, out, _ := lanyardAs(ctx, kubeconfig, "", "check", "--redact", "--namespace", "shop", "--service-account", "cart", "--output", "json")
			Expect(out).To(ContainSubstring("pods of ServiceAccount <namespace-1>/<serviceaccount-1> " + text))
			Expect(out).NotTo(MatchRegexp("shop|cart|viewer|127.0.0.1|111122223333"))
		}
	})

	It("finds the API server that cannot call the webhook", func(ctx SpecContext) {
		kubeconfig := behind()
		code, out := check(ctx, kubeconfig, "--namespace", "shop", "--attempts", "8")
		Expect(out).To(MatchRegexp(`× the webhook was called in [1-7] of 8 dry runs, each over its own connection: .*no endpoints`))
		Expect(code).To(Equal(command.ExitFound))
	})
})

// deletePods deletes the pods that other specs left, so that check does not count them.
func deletePods(ctx SpecContext) {
	GinkgoHelper()
	list, err := env.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for i := range list.Items {
		pod := &list.Items[i]
		Expect(env.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})).To(Succeed())
	}
}

// behind returns the kubeconfig of a load balancer with two API servers, one of which cannot
// call the webhook. All requests of a connection reach the same API server.
func behind() string {
	GinkgoHelper()
	return proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if connection(r)%2 != 0 || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") {
			next.ServeHTTP(w, r)
			return
		}
		status := apierrors.NewInternalError(http.ErrServerClosed).Status()
		status.Message = `Internal error occurred: failed calling webhook "probe.lanyard.dev": no endpoints available`
		status.Kind, status.APIVersion = "Status", "v1"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(status)
	})
}

// strict contains the rules of common policies of Kyverno and Gatekeeper, each for a
// container or a pod.
var strict = map[string]string{
	"registries":                "object.spec.containers.all(c, c.image.startsWith('registry.k8s.io/'))",
	"tag":                       "object.spec.containers.all(c, c.image.contains(':') && !c.image.endsWith(':latest'))",
	"requests":                  "object.spec.containers.all(c, ['cpu', 'memory'].all(r, r in c.resources.requests))",
	"limits":                    "object.spec.containers.all(c, ['cpu', 'memory', 'ephemeral-storage'].all(r, r in c.resources.limits && c.resources.limits[r] == c.resources.requests[r]))",
	"labels":                    "['app.kubernetes.io/name', 'app.kubernetes.io/instance', 'app.kubernetes.io/component'].all(l, l in object.metadata.labels)",
	"non-root":                  "object.spec.securityContext.runAsNonRoot && object.spec.containers.all(c, c.securityContext.runAsNonRoot)",
	"read-only-root-filesystem": "object.spec.containers.all(c, c.securityContext.readOnlyRootFilesystem)",
	"automount":                 "object.spec.automountServiceAccountToken == false",
	"probes":                    "object.spec.containers.all(c, has(c.livenessProbe) && has(c.readinessProbe))",
	"capabilities":              "object.spec.containers.all(c, 'ALL' in c.securityContext.capabilities.drop)",
	"no-user":                   "!has(object.spec.securityContext.runAsUser) && object.spec.containers.all(c, !has(c.securityContext.runAsUser))", // OpenShift
}

// newPolicies creates policies for the pods of the namespace strict. Each policy also has its
// own namespace, in which newPolicies waits until the policy denies a pod without any of these
// fields.
func newPolicies(ctx context.Context, expressions map[string]string) {
	GinkgoHelper()
	for name, expression := range expressions {
		newPolicy(ctx, "strict-"+name, expression)
	}
	pod := newPod("bad", "default")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000))}
	for name := range expressions {
		Eventually(ctx, func(ctx context.Context) error {
			_, err := env.client.CoreV1().Pods("strict-"+name).Create(ctx, pod, dryRun)
			return err
		}).Should(MatchError(ContainSubstring("ValidatingAdmissionPolicy 'strict-" + name + "'")))
	}
}

// newPolicy creates a policy and the namespace with its name.
func newPolicy(ctx context.Context, name, expression string) {
	GinkgoHelper()
	api := env.client.AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: name}
	newNamespace(ctx, name)
	_, err := api.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}}},
		Validations: []admissionregistrationv1.Validation{{Expression: expression}},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{"strict", name}},
		}}},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(api.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		Expect(api.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	})
}

var _ = Describe("check in a cluster with a policy engine", Ordered, func() {
	It("sends a pod that the common rules allow", func(ctx SpecContext) {
		_, err := env.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "strict", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		newServiceAccount(ctx, "strict", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		newPolicies(ctx, strict)
		code, out, _ := lanyard(ctx, "check", "--namespace", "strict", "--service-account", "cart", "--config", adopting(""))
		Expect(out).To(ContainSubstring("√ pods of ServiceAccount strict/cart get credentials"))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("tells the denial of a policy from a mistake of Lanyard, and has an option for it", func(ctx SpecContext) {
		newPolicies(ctx, map[string]string{"team": "has(object.metadata.labels) && 'team' in object.metadata.labels"})
		args := []string{"check", "--namespace", "strict", "--service-account", "cart", "--config", adopting("")}
		var out string
		Eventually(ctx, func(ctx context.Context) int {
			var code int
			code, out, _ = lanyard(ctx, args...)
			return code
		}).Should(Equal(command.ExitFailed))
		Expect(out).To(ContainSubstring("? the dry run of a pod was denied, but not by Lanyard: "))
		Expect(out).To(ContainSubstring("set the image, labels or other fields of the pod with --overrides"))
		Expect(out).To(ContainSubstring("? pods of ServiceAccount strict/cart were not tested"))
		code, out, _ := lanyard(ctx, append(args, "--overrides", `{"metadata": {"labels": {"team": "shop"}}}`)...)
		Expect(out).To(ContainSubstring("√ pods of ServiceAccount strict/cart get credentials"))
		Expect(code).To(Equal(command.ExitOK))
		code, _, errOut := lanyard(ctx, append(args, "--overrides", "[]")...)
		Expect(errOut).To(ContainSubstring("--overrides"))
		Expect(code).To(Equal(command.ExitFailed))
	})
})
