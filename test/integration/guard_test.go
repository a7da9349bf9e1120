// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/decisions"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	// guardDenies is the beginning of a denial by the guard, for a pod without the
	// label of an injected pod.
	guardDenies = "ValidatingAdmissionPolicy 'lanyard-guard-pods' with binding 'lanyard-guard-pods' denied request: lanyard: "
	// guardDeniesInjected is the beginning for a pod with this label, or that insists.
	guardDeniesInjected = "ValidatingAdmissionPolicy 'lanyard-guard-injected' with binding 'lanyard-guard-injected' denied request: lanyard: "
	mirrorPod           = "kubernetes.io/config.mirror"
)

// identityKeys lists the annotations that ask for credentials.
var identityKeys = []string{"aws-role-arn", "azure-client-id", "gcp-workload-identity-provider", "gcp-service-account", "audience", "tokens"}

// needsCredentials reports whether a ServiceAccount with these annotations needs credentials.
func needsCredentials(annotations map[string]string) bool {
	return slices.ContainsFunc(identityKeys, func(key string) bool {
		_, found := annotations["lanyard.dev/"+key]
		return found
	})
}

// guardRule is the guard's rule in Go for a new pod. labelled reports whether the
// ServiceAccount of the pod has the label.
func guardRule(pod *corev1.Pod, labelled bool) (denied bool) {
	inject := []string{pod.Annotations["lanyard.dev/inject"], pod.Labels["lanyard.dev/inject"]}
	if _, isMirror := pod.Annotations[mirrorPod]; isMirror || slices.Contains(inject, "false") {
		return false
	}
	if pod.Labels["lanyard.dev/identity"] == "injected" {
		return lacksMount(pod)
	}
	return slices.Contains(inject, "true") || labelled && lacksMount(pod)
}

// lacksMount reports whether nothing is mounted at or below the token path in some
// container that is not left out or, if all are left out, in any container.
func lacksMount(pod *corev1.Pod) bool {
	listed := func(key, name string) bool {
		return slices.ContainsFunc(strings.Split(pod.Annotations["lanyard.dev/"+key], ","), func(listed string) bool {
			return strings.TrimSpace(listed) == name
		})
	}
	_, hasContainers := pod.Annotations["lanyard.dev/containers"]
	_, hasSkipped := pod.Annotations["lanyard.dev/skip-containers"]
	anyMount := false
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.MountPath == mountPath || strings.HasPrefix(m.MountPath, mountPath+"/") || isAbove(pod, &m)
		})
		anyMount = anyMount || mounted
		isLeftOut := hasContainers && !listed("containers", c.Name) || !hasContainers && listed("skip-containers", c.Name)
		if !isLeftOut && !mounted {
			return true
		}
	}
	return (hasContainers || hasSkipped) && !anyMount
}

// isAbove reports whether a read-only mount of the pod is above the token path.
func isAbove(pod *corev1.Pod, m *corev1.VolumeMount) bool {
	path := strings.TrimSuffix(m.MountPath, "/")
	if !strings.HasPrefix(mountPath, path+"/") && !strings.HasPrefix(mountPath, "/var"+path+"/") {
		return false
	}
	return m.ReadOnly || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		claim := v.PersistentVolumeClaim
		return v.Name == m.Name && (v.Secret != nil || v.ConfigMap != nil || v.DownwardAPI != nil || v.Projected != nil || v.Image != nil || claim != nil && claim.ReadOnly)
	})
}

// goldenCase is a golden case about a new pod. The guard only matches the creation of
// pods, so cases about ephemeral containers do not matter.
type goldenCase struct {
	name      string
	pod       *corev1.Pod
	account   *corev1.ServiceAccount
	namespace map[string]string // annotations
	// touched reports whether the webhook changes or denies the pod, and warned whether it
	// warns that the guard denies the pod.
	touched, warned bool
}

// goldenExceptions are the cases in which the guard, without the webhook, allows
// a pod that the webhook changes or denies.
var goldenExceptions = map[string]string{
	"mount-path-in-another-spelling": "the guard compares strings, and the path begins like one below the token mount path",
	"session-name-without-a-role":    "the ServiceAccount has no annotation that needs credentials, so it has no label",
	"misspelled-key-on-the-account":  "the ServiceAccount has no annotation that needs credentials, so it has no label",
	"profiles-without-a-role":        "the ServiceAccount has no annotation that needs credentials, so it has no label",
}

// serverDenies are the cases that the API server itself rejects.
var serverDenies = map[string]string{
	"no-container": "spec.containers: Required value",
	"mirror-pod":   "a mirror pod may not reference service accounts",
}

// goldenCases returns the cases of new pods in a cluster without settings.
func goldenCases() []goldenCase {
	all, err := decisions.Read("../decisions")
	if err != nil {
		panic(err) // the tree of specs cannot be built
	}
	var cases []goldenCase
	for _, golden := range all {
		if golden.IsEphemeral() || golden.Settings != "" {
			continue
		}
		c := goldenCase{name: golden.Name, pod: &corev1.Pod{}, account: &corev1.ServiceAccount{}}
		for into, text := range map[any][]byte{c.pod: golden.Pod, c.account: golden.ServiceAccount} {
			if text == nil {
				continue
			}
			if err := json.Unmarshal(text, into); err != nil {
				panic(err)
			}
		}
		c.namespace, c.touched = golden.NamespaceAnnotations, golden.Want.Reason == "injected" || golden.Want.Message != ""
		c.warned = slices.ContainsFunc(golden.Want.Warnings, func(warning string) bool { return strings.HasPrefix(warning, "lanyard: no_container: ") })
		cases = append(cases, c)
	}
	return cases
}

// denied reports whether the guard denies the pod according to its rule.
func (c *goldenCase) denied() bool {
	labelled := needsCredentials(c.account.Annotations) || c.account.Labels["lanyard.dev/identity"] == "required"
	return guardRule(c.pod, labelled && c.pod.Spec.ServiceAccountName == c.account.Name)
}

// store creates the case's namespace and ServiceAccount, with the label that the
// webhook would add, and returns the namespace.
func (c *goldenCase) store(ctx context.Context) string {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	if c.namespace != nil {
		object, err := cluster.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		object.Annotations = c.namespace
		_, err = cluster.client.CoreV1().Namespaces().Update(ctx, object, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	if c.account.Labels != nil {
		waitingAccount(ctx, namespace, c.account.Name, c.account.Annotations)
	} else {
		labelledAccount(ctx, namespace, c.account.Name, c.account.Annotations)
	}
	return namespace
}

// labelledAccount creates a ServiceAccount with the label that the webhook would
// add.
func labelledAccount(ctx context.Context, namespace, name string, values map[string]string) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: values}}
	if needsCredentials(values) {
		account.Labels = map[string]string{"lanyard.dev/identity": "enabled"}
	}
	_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// waitingAccount creates a ServiceAccount with the label that a user adds.
func waitingAccount(ctx context.Context, namespace, name string, values map[string]string) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: values, Labels: map[string]string{"lanyard.dev/identity": "required"}}}
	_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// tryPod creates a pod as a dry run.
func tryPod(ctx context.Context, namespace string, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	pod.Namespace = namespace
	if _, isMirror := pod.Annotations[mirrorPod]; isMirror {
		pod.Spec.NodeName = "node"
	}
	_, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, dryRun)
	return err
}

// deniedByGuard reports whether the guard denied a pod, and fails for any other
// error.
func deniedByGuard(err error) bool {
	GinkgoHelper()
	if err == nil {
		return false
	}
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	Expect(err).To(MatchError(Or(ContainSubstring(guardDenies), ContainSubstring(guardDeniesInjected))))
	return true
}

// touches asks a webhook directly, and reports whether it would change or deny
// the pod.
func touches(ctx context.Context, process *webhook.Process, namespace string, pod *corev1.Pod) bool {
	GinkgoHelper()
	text, err := json.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	answer := review(ctx, process, namespace, text)
	return !answer.Allowed || answer.Patch != nil
}

// unregister removes the webhook configurations, and waits until only the guard
// is left.
func unregister(ctx context.Context) {
	GinkgoHelper()
	api := cluster.client.AdmissionregistrationV1()
	Expect(api.MutatingWebhookConfigurations().Delete(ctx, "lanyard", metav1.DeleteOptions{})).To(Succeed())
	Expect(api.ValidatingWebhookConfigurations().Delete(ctx, "lanyard", metav1.DeleteOptions{})).To(Succeed())
	waitForGuard(ctx)
	namespace := newNamespace(ctx)
	bad := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bad", Annotations: map[string]string{"lanyard.dev/unknown": "bad"}}}
	Eventually(ctx, func(ctx context.Context) error {
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, bad, dryRun)
		return err
	}).Within(startTimeout).Should(Succeed())
}

// waitForGuard waits, while the webhook is not registered, until the guard knows
// every ServiceAccount: the API server learns of them from a watch, in the order
// of their writes.
func waitForGuard(ctx context.Context) {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	labelledAccount(ctx, namespace, "latest", map[string]string{"lanyard.dev/audience": "latest"})
	Eventually(ctx, func(ctx context.Context) error {
		return tryPod(ctx, namespace, newPod("pod", "latest", 1))
	}).Within(startTimeout).Should(MatchError(ContainSubstring(guardDenies)))
}

// registerAnew undoes unregister.
func registerAnew(ctx context.Context) {
	GinkgoHelper()
	Expect(cluster.webhook.Register(ctx, cluster.client, deployDir)).To(Succeed())
	waitForRegistration(ctx)
}

var _ = Describe("The guard over the golden cases", policies, Ordered, ContinueOnFailure, func() {
	cases := goldenCases()
	namespaces := map[string]string{}
	BeforeAll(func(ctx SpecContext) {
		// The validating webhook would deny malformed ServiceAccounts.
		unregister(ctx)
		for _, c := range cases {
			namespaces[c.name] = c.store(ctx)
		}
		waitForGuard(ctx)
	})

	Context("without the webhook", func() {
		for _, c := range cases {
			It(map[bool]string{true: "denies: ", false: "allows: "}[c.denied()]+c.name, func(ctx SpecContext) {
				err := tryPod(ctx, namespaces[c.name], c.pod)
				if message, denies := serverDenies[c.name]; denies {
					Expect(err).To(MatchError(ContainSubstring(message)))
					return
				}
				Expect(deniedByGuard(err)).To(Equal(c.denied()))
			})
		}

		It("denies just the pods that the webhook changes, denies or warns of", func() {
			for _, c := range cases {
				if _, denies := serverDenies[c.name]; denies {
					continue
				}
				_, isException := goldenExceptions[c.name]
				Expect(c.denied()).To(Equal((c.touched || c.warned) != isException), c.name)
			}
		})
	})

	Context("together with the webhook", Ordered, func() {
		BeforeAll(func(ctx SpecContext) { registerAnew(ctx) })
		for _, c := range cases {
			It("leaves the decision to it: "+c.name, func(ctx SpecContext) {
				err := tryPod(ctx, namespaces[c.name], c.pod)
				if message, denies := serverDenies[c.name]; denies {
					Expect(err).To(MatchError(ContainSubstring(message)))
					return
				}
				if c.warned {
					Expect(err).To(MatchError(ContainSubstring("leave out all of its containers")))
					return
				}
				if err != nil {
					Expect(err).NotTo(MatchError(ContainSubstring("ValidatingAdmissionPolicy")))
				}
				text, jsonErr := json.Marshal(c.pod)
				Expect(jsonErr).NotTo(HaveOccurred())
				Expect(err == nil).To(Equal(review(ctx, cluster.webhook, namespaces[c.name], text).Allowed), "%v", err)
			})
		}
	})
})
