// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

// verifier is the name of the init container that verifies.
const verifier = "lanyard-verify"

// The image is loaded into the nodes, which have no registry. Lanyard adds the container to one
// pod. The other pods contain it already, like pods behind a proxy, because it needs the CA of the
// emulators, or a timeout other than two minutes.
var _ = It("A verified start waits for the clouds, and says what is wrong", func(ctx SpecContext) {
	newVerified(ctx, "verified", "wait")
	newVerified(ctx, "unverified", "wait")
	newVerified(ctx, "unreachable", "warn")

	By("starting pods without a way to the cloud, and one that the cloud refuses")
	added := unredirected(ctx, framework.SDKPod("unreachable", framework.Go, journal.AWS))
	Expect(added.Spec.InitContainers).To(ConsistOf(SatisfyAll(HaveField("Name", verifier), HaveField("Image", framework.WebhookImage))))
	lost := unredirected(ctx, verifiedPod("unreachable", "--warn", "--timeout=5s"))
	refused := checker.Create(ctx, namespace, verifiedPod("unverified", "--timeout=20s"))

	By("reading what kubectl describe shows about them")
	_, err := cluster.WaitContainer(ctx, refused, verifier, framework.Terminated)
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.Run(ctx, "kubectl", "describe", "pod", refused.Name, "--namespace", namespace)).To(SatisfyAll(
		ContainSubstring("AWS denies the token of identity/unverified: AccessDenied"),
		ContainSubstring("Repair: let the trust policy of "+identities.Role), ContainSubstring("the subject system:serviceaccount:identity:unverified"),
		ContainSubstring("Commands: lanyard trust aws unverified --namespace identity")))
	_, err = cluster.WaitContainer(ctx, lost, framework.SDKContainer, framework.Started)
	Expect(err).NotTo(HaveOccurred(), "verify: warn does not keep a pod from starting")
	Expect(cluster.Run(ctx, "kubectl", "describe", "pod", lost.Name, "--namespace", namespace)).To(SatisfyAll(
		ContainSubstring("cannot reach AWS: "), ContainSubstring("Repair: allow the pod to reach sts.eu-central-1.amazonaws.com")))
	Eventually(ctx, logOf).WithArguments(added).Should(ContainSubstring("cannot reach AWS: "))

	By("starting a pod that the cloud accepts later")
	granted := expect.Outcomes{journal.AWS: expect.Granted(identities.Role)}
	checker.Begin("verified start", framework.Go, granted)
	late := checker.Create(ctx, namespace, verifiedPod("verified", "--timeout="+expect.Patience.String()))
	Eventually(ctx, logOf).WithArguments(late).Should(ContainSubstring("AWS denies the token of identity/verified: AccessDenied"))
	trusted := trustInstead(ctx, ":identity:later", ":identity:verified")
	checker.Check(ctx, "verified start", framework.Go, late, framework.SDKContainer, granted)
	Expect(logOf(ctx, late)).To(ContainSubstring("AWS accepts the token"))

	By("starting a pod that the cloud accepts at once")
	prompt := checker.Create(ctx, namespace, verifiedPod("verified"))
	_, err = cluster.WaitContainer(ctx, prompt, framework.SDKContainer, framework.Terminated)
	Expect(err).NotTo(HaveOccurred())
	Expect(logOf(ctx, prompt)).NotTo(ContainSubstring("denies"))
	trusted()
})

// newVerified creates a ServiceAccount with a verified start.
func newVerified(ctx context.Context, name, verify string) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		"lanyard.dev/aws-role-arn": identities.Role, "lanyard.dev/aws-region": "eu-central-1", "lanyard.dev/verify": verify,
	}}}
	_, err := cluster.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// unredirected creates a pod that reaches neither the cloud nor its emulator, until the end of the spec.
func unredirected(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"sts.eu-central-1.amazonaws.com"}}} // TEST-NET-1
	created, err := cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return cluster.CoreV1().Pods(namespace).Delete(ctx, created.Name, metav1.DeleteOptions{})
	})
	return created
}

// verifiedPod returns a pod with the container that verifies, which has the arguments.
func verifiedPod(account string, args ...string) *corev1.Pod {
	pod := framework.SDKPod(account, framework.Go, journal.AWS)
	own := framework.SDK(framework.Go, append([]string{"verify"}, args...)...)
	own.Name, own.Image = verifier, framework.WebhookImage
	pod.Spec.InitContainers = []corev1.Container{own}
	return pod
}

// logOf returns the log of the container that verifies.
func logOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	text, err := cluster.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: verifier}).DoRaw(ctx)
	return string(text), err
}

// trustInstead makes the emulators trust another ServiceAccount, until the function that it returns
// is called.
func trustInstead(ctx context.Context, old, other string) (restore func()) {
	GinkgoHelper()
	const clouds, name, key = "clouds", "clouds-trust", "trust.yaml"
	before, err := cluster.CoreV1().ConfigMaps(clouds).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(before.Data[key]).To(ContainSubstring(old))
	write := func(text string) {
		GinkgoHelper()
		patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, key, text)
		_, err := cluster.CoreV1().ConfigMaps(clouds).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, command := range []string{"restart", "status"} {
			_, err = cluster.Run(ctx, "kubectl", "rollout", command, "deployment/clouds", "--namespace", clouds)
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(ctx, func(ctx context.Context) ([]corev1.Pod, error) {
			pods, err := cluster.CoreV1().Pods(clouds).List(ctx, metav1.ListOptions{})
			return pods.Items, err
		}).Should(HaveLen(1), "the previous pod of the emulators is gone")
		Expect(checker.Clouds.WaitReachable(ctx)).To(Succeed())
	}
	write(strings.ReplaceAll(before.Data[key], old, other))
	return func() { write(before.Data[key]) }
}
