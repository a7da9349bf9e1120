// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies_test checks Lanyard without a program: the policies of deploy/policies
// on a real cluster, alone and together with the webhook.
package policies_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

const namespace = identities.Namespace

// Shared by all specs.
var (
	cluster *framework.Cluster
	checker expect.Checker
	// report is printed at the end.
	report []string
)

func TestPolicies(t *testing.T) {
	expect.Suite(t, "policies")
}

// One container, because the order matters: the webhook is installed after the specs
// that must work without it, and a killed API server disturbs the whole cluster.
var _ = Describe("Policies", Ordered, ContinueOnFailure, func() {
	BeforeAll(begin)
	AfterAll(func() { fmt.Printf("\n%s\n%s\n", strings.Join(report, "\n"), checker.Table.String()) })

	Describe("without a program", func() {
		sdks()
		denials()
		race()
		It("have done this without a program of Lanyard", noProgram)
	})
	Describe("beside the webhook", Ordered, beside)
	Describe("while the API server restarts", restart)
})

// begin starts the emulators on the empty cluster. Then it does everything that a user
// does, with the user's commands, and measures it.
func begin(ctx SpecContext) {
	var err error
	cluster, err = framework.Connect()
	Expect(err).NotTo(HaveOccurred())
	checker.Cluster = cluster
	checker.Clouds, err = cluster.StartClouds(ctx, identities.Trust)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return checker.Clouds.Stop(ctx) })
	Expect(cluster.SetUp(ctx, checker.Clouds, namespace, nil, []byte("{}"))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, namespace) })

	older, err := someAccounts("gcp-impersonated")
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.CreateAccounts(ctx, namespace, older)).To(Succeed())

	start := time.Now()
	Expect(framework.Policies{}.Up(ctx, cluster)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return framework.Policies{}.Down(ctx, cluster) })
	took(start, "kubectl apply -k deploy/policies, and the API server follows them")
	command(ctx, start, "kubectl", "create", "serviceaccount", "aws", "--namespace", namespace)
	command(ctx, start, "kubectl", "annotate", "serviceaccount", "aws", "--namespace", namespace,
		"lanyard.dev/aws-role-arn="+identities.Role, "lanyard.dev/aws-region=eu-central-1")
	Expect(cluster.WaitInjected(ctx, namespace, "aws")).To(Succeed())
	took(start, "a pod is injected")
	const name = "account aws, by kubectl annotate"
	want := expect.Outcomes{journal.AWS: expect.Granted(identities.Role)}
	checker.Begin(name, framework.Go, want)
	pod := framework.SDKPod("aws", framework.Go, journal.AWS)
	checker.Clouds.Redirect(&pod.Spec)
	pod, err = cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	took(start, "the pod is created")
	checker.Check(ctx, name, framework.Go, pod, framework.SDKContainer, want)
	took(start, "the pod has a credential of the emulator")

	accounts, err := someAccounts("gcp-direct", "three-clouds", "none")
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.CreateAccounts(ctx, namespace, accounts)).To(Succeed())
	Expect(cluster.WaitInjected(ctx, namespace, "three-clouds")).To(Succeed())
}

// command runs a command and records the time.
func command(ctx SpecContext, start time.Time, name string, arguments ...string) {
	GinkgoHelper()
	_, err := cluster.Run(ctx, name, arguments...)
	Expect(err).NotTo(HaveOccurred())
	took(start, name+" "+strings.Join(arguments, " "))
}

// took records the time since the start.
func took(start time.Time, what string) {
	report = append(report, fmt.Sprintf("%5.2f s  %s", time.Since(start).Seconds(), what))
}

// noProgram checks that no pod of the cluster runs an image of Lanyard, and that no webhook
// of Lanyard is registered.
func noProgram(ctx SpecContext) {
	pods, err := cluster.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods.Items).NotTo(BeEmpty())
	for _, pod := range pods.Items {
		Expect(slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return c.Image == framework.WebhookImage || c.Image == framework.LanyardImage
		})).To(BeFalse(), pod.Name)
	}
	webhooks, err := cluster.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(webhooks.Items).NotTo(ContainElement(HaveField("Name", framework.Configuration)))
}

// someAccounts returns a part of identities.Accounts.
func someAccounts(names ...string) ([]byte, error) {
	var list corev1.ServiceAccountList
	if err := yaml.UnmarshalStrict(identities.Accounts, &list); err != nil {
		return nil, fmt.Errorf("decode the ServiceAccounts: %w", err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(account corev1.ServiceAccount) bool { return !slices.Contains(names, account.Name) })
	return yaml.Marshal(list)
}
