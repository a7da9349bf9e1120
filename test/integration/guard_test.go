// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// Places of the golden cases, and how a refusal of the guard begins.
const (
	goldenDir     = "../../internal/injector/testdata"
	guardsPods    = "ValidatingAdmissionPolicy 'lanyard-guard-pods' with binding 'lanyard-guard-pods' denied request: lanyard: "
	guardsAccount = "ValidatingAdmissionPolicy 'lanyard-guard-serviceaccounts' with binding 'lanyard-guard-serviceaccounts' denied request: lanyard: "
)

// goldenCase is a directory of goldenDir that is about a new pod. Those about
// ephemeral containers are not for the guard, which sees creations alone: a
// running pod's volumes cannot change, and nothing is lost that it had.
type goldenCase struct {
	name      string
	pod       *corev1.Pod
	account   *corev1.ServiceAccount
	namespace map[string]string // annotations
	// touched: the webhook changes or refuses the pod.
	touched bool
}

// goldenExceptions are the cases in which the guard, without the webhook, does
// not refuse just what the webhook changes or refuses.
var goldenExceptions = map[string]string{
	"misspelled-key-on-the-account": "the account has no key that asks for an identity, so it is not labelled, and the guard does not know of it",
}

// serverRefuses are the cases that the API server refuses by itself.
var serverRefuses = map[string]string{
	"no-container": "spec.containers: Required value",
	"mirror-pod":   "a mirror pod may not reference service accounts",
}

func goldenCases() []goldenCase {
	files, err := filepath.Glob(filepath.Join(goldenDir, "*", "want.yaml"))
	if err != nil || len(files) == 0 {
		panic("no golden cases in " + goldenDir)
	}
	var cases []goldenCase
	for _, file := range files {
		dir := filepath.Dir(file)
		if _, err := os.Stat(filepath.Join(dir, "old.yaml")); err == nil {
			continue
		}
		var want struct{ Reason, Message string }
		var namespace corev1.Namespace
		c := goldenCase{name: filepath.Base(dir), pod: &corev1.Pod{}, account: &corev1.ServiceAccount{}}
		readGolden(file, &want)
		readGolden(filepath.Join(dir, "pod.yaml"), c.pod)
		readGolden(filepath.Join(dir, "serviceaccount.yaml"), c.account)
		if _, err := os.Stat(filepath.Join(dir, "namespace.yaml")); err == nil {
			readGolden(filepath.Join(dir, "namespace.yaml"), &namespace)
		}
		c.namespace, c.touched = namespace.Annotations, want.Reason == "injected" || want.Message != ""
		cases = append(cases, c)
	}
	return cases
}

func readGolden(file string, into any) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		panic(err) // the tree of specs cannot be built
	}
}

// store makes the case's namespace and account, labelled as the webhook would,
// and gives the namespace.
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
	labelledAccount(ctx, namespace, c.account.Name, c.account.Annotations)
	return namespace
}

// labelledAccount makes an account with the label that the webhook gives it
// where it is there.
func labelledAccount(ctx context.Context, namespace, name string, values map[string]string) {
	GinkgoHelper()
	keys, err := annotations.NewKeys(annotations.DefaultPrefix)
	Expect(err).NotTo(HaveOccurred())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: values}}
	if keys.AskForIdentity(values) {
		account.Labels = map[string]string{keys.IdentityLabel: annotations.LabelEnabled}
	}
	_, err = cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// tryPod creates a pod without storing it.
func tryPod(ctx context.Context, namespace string, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	pod.Namespace = namespace
	if _, isMirror := pod.Annotations[annotations.MirrorPodKey]; isMirror {
		pod.Spec.NodeName = "node"
	}
	_, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, dryRun)
	return err
}

// refusedByGuard says whether a pod was, and fails for another error.
func refusedByGuard(err error) bool {
	GinkgoHelper()
	if err == nil {
		return false
	}
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	Expect(err).To(MatchError(ContainSubstring(guardsPods)))
	return true
}

// touches asks a webhook, past the API server, whether it would change or
// refuse the pod.
func touches(ctx context.Context, process *webhook.Process, namespace string, pod *corev1.Pod) bool {
	GinkgoHelper()
	text, err := json.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	answer := review(ctx, process, namespace, text)
	return !answer.Allowed || answer.Patch != nil
}

// unregister has the API server call the webhook no more, as when every
// replica is gone, and waits until only the guard is left.
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

// waitForGuard waits, while the webhook is not registered, until the guard
// knows of every account that there is: the API server learns of accounts from
// a watch of its own, in the order of their writes.
func waitForGuard(ctx context.Context) {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	labelledAccount(ctx, namespace, "probe", map[string]string{"lanyard.dev/audience": "probe"})
	Eventually(ctx, func(ctx context.Context) error {
		return tryPod(ctx, namespace, newPod("probe", "probe", 1))
	}).Within(startTimeout).Should(MatchError(ContainSubstring(guardsPods)))
}

// registerAnew undoes unregister.
func registerAnew(ctx context.Context) {
	GinkgoHelper()
	Expect(cluster.webhook.Register(ctx, cluster.client, deployDir)).To(Succeed())
	waitForRegistration(ctx)
}

var _ = Describe("The guard over the golden cases", Ordered, func() {
	cases := goldenCases()
	namespaces := map[string]string{}
	BeforeAll(func(ctx SpecContext) {
		// The validating webhook would refuse the malformed accounts.
		unregister(ctx)
		for _, c := range cases {
			namespaces[c.name] = c.store(ctx)
		}
		waitForGuard(ctx)
	})

	Context("without the webhook", func() {
		for _, c := range cases {
			It(verdict(&c)+": "+c.name, func(ctx SpecContext) {
				err := tryPod(ctx, namespaces[c.name], c.pod)
				if message, refuses := serverRefuses[c.name]; refuses {
					Expect(err).To(MatchError(ContainSubstring(message)))
					return
				}
				_, isException := goldenExceptions[c.name]
				Expect(refusedByGuard(err)).To(Equal(c.touched != isException))
			})
		}
	})

	Context("beside the webhook", Ordered, func() {
		BeforeAll(func(ctx SpecContext) { registerAnew(ctx) })
		for _, c := range cases {
			It("leaves the word to it: "+c.name, func(ctx SpecContext) {
				err := tryPod(ctx, namespaces[c.name], c.pod)
				if message, refuses := serverRefuses[c.name]; refuses {
					Expect(err).To(MatchError(ContainSubstring(message)))
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

// verdict names what the guard does about a case.
func verdict(c *goldenCase) string {
	if _, isException := goldenExceptions[c.name]; c.touched != isException {
		return "refuses"
	}
	return "passes"
}
