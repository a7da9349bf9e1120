// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

// A chart creates the ServiceAccount and the Deployment, and Terraform annotates the
// ServiceAccount later. The name of the session is the name of the pod, which the API
// server generates.
var _ = It("A Deployment whose ServiceAccount is annotated later starts with credentials, and never without", func(ctx SpecContext) {
	const name, denied = "identity later", 8
	granted := expect.Outcomes{journal.AWS: expect.Granted(identities.Role)}
	checker.Begin(name, framework.Go, granted)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "later", Labels: map[string]string{"lanyard.dev/identity": "required"}}}
	accounts := cluster.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(ctx, account, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())

	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"workload": "later"}}}
	template.Spec = framework.SDKPod(account.Name, framework.Go, "--forever", journal.AWS).Spec
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	checker.Clouds.Redirect(&template.Spec)
	deployment, err := cluster.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: appsv1.DeploymentSpec{Selector: selects(template), Template: template},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	list := metav1.ListOptions{LabelSelector: "workload=later"}
	pods := func(ctx context.Context) ([]corev1.Pod, error) {
		found, err := cluster.CoreV1().Pods(namespace).List(ctx, list)
		return found.Items, err
	}
	Eventually(ctx, denials).WithArguments(deployment).Should(ContainElement(HaveField("Message", ContainSubstring("lanyard: identity_required: "))))
	Eventually(ctx, failures).WithArguments("later-").Should(BeNumerically(">=", denied))
	Expect(pods(ctx)).To(BeEmpty())

	_, err = accounts.Patch(ctx, account.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"lanyard.dev/aws-role-arn":"`+identities.Role+
		`","lanyard.dev/aws-region":"eu-central-1","lanyard.dev/aws-session-name":"pod"}}}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, pods).Should(HaveLen(1))
	started, err := pods(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(started).To(ConsistOf(HaveField("Annotations", HaveKeyWithValue("lanyard.dev/injected", "aws"))))
	checker.Check(ctx, name, framework.Go, &started[0], framework.SDKContainer, granted)
})

// failures returns how often ReplicaSets with this prefix of a name could not create a pod.
func failures(ctx context.Context, start string) (times int, err error) {
	events, err := cluster.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate,involvedObject.kind=ReplicaSet"})
	if err != nil {
		return 0, err
	}
	for i := range events.Items {
		if strings.HasPrefix(events.Items[i].InvolvedObject.Name, start) {
			times += int(max(events.Items[i].Count, 1))
		}
	}
	return times, nil
}
