// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenarios_test checks that the manifests in examples/scenarios, which
// test/e2e/suite/scenarios describes, work without changes.
package scenarios_test

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// Shared by all specs.
var (
	cluster *framework.Cluster
	checker expect.Checker

	//go:embed testdata/trust.yaml
	trust string
	//go:embed testdata/accounts.yaml
	accounts []byte
)

func TestScenarios(t *testing.T) {
	expect.Suite(t, "scenarios")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = framework.Connect()
	Expect(err).NotTo(HaveOccurred())
	checker.Cluster = cluster
	checker.Clouds, err = cluster.StartClouds(ctx, trust)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return checker.Clouds.Stop(ctx) })
})

var _ = AfterSuite(func() {
	fmt.Printf("\n%s\n", checker.Table.String())
})

// installed installs Lanyard with additional chart values for the specs of an
// ordered container.
func installed(values ...string) {
	install := framework.Install{
		// No shutdown delay: the availability suite tests the shutdown.
		Values: append(values, "shutdownDelaySeconds=0"),
	}
	BeforeAll(func(ctx SpecContext) {
		Expect(install.Up(ctx, cluster)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return install.Down(ctx, cluster) })
		const probe = "scenarios-probe"
		Expect(cluster.SetUp(ctx, checker.Clouds, probe, nil, accounts)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, probe) })
		Expect(cluster.WaitInjected(ctx, probe, "probe")).To(Succeed())
	})
}

// scenario contains the objects of a directory in examples/scenarios.
type scenario []client.Object

// begin creates a scenario and deletes it at the end of the spec.
func begin(ctx context.Context, path string) scenario {
	GinkgoHelper()
	created, err := create(ctx, "examples/scenarios/"+path)
	DeferCleanup(func(ctx SpecContext) {
		for _, object := range created {
			if namespace, ok := object.(*corev1.Namespace); ok {
				Expect(cluster.DeleteNamespace(ctx, namespace.Name)).To(Succeed())
			}
		}
	})
	Expect(err).NotTo(HaveOccurred())
	return created
}

// template returns the pod template of a workload such as
// backup-blue/backup-server.
func (s scenario) template(workload string) *corev1.PodSpec {
	GinkgoHelper()
	for _, object := range s {
		if spec := podSpec(object); spec != nil && object.GetNamespace()+"/"+object.GetName() == workload {
			return spec
		}
	}
	Fail("unknown workload " + workload)
	return nil
}

// pod returns the first pod of a workload.
func (s scenario) pod(ctx context.Context, workload string) *corev1.Pod {
	GinkgoHelper()
	namespace, name, _ := strings.Cut(workload, "/")
	var pod *corev1.Pod
	Eventually(func(g Gomega) {
		pods, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for i := range pods.Items {
			if strings.HasPrefix(pods.Items[i].Name, name+"-") {
				pod = &pods.Items[i]
			}
		}
		g.Expect(pod).NotTo(BeNil())
	}).WithContext(ctx).Should(Succeed(), "a pod of %s", workload)
	return pod
}

// check compares the pod of a workload with an expected result for one cloud.
func (s scenario) check(ctx context.Context, title, workload, cloud string, want expect.Outcome) *corev1.Pod {
	GinkgoHelper()
	By("checking " + workload)
	wants := expect.Outcomes{cloud: want}
	row := title + ": " + workload
	checker.Begin(row, framework.Go, wants)
	pod := s.pod(ctx, workload)
	checker.Check(ctx, row, framework.Go, pod, s.template(workload).Containers[0].Name, wants)
	return pod
}

// untouched is like check for a pod that Lanyard must not change.
func (s scenario) untouched(ctx context.Context, title, workload, cloud string, want expect.Outcome) {
	GinkgoHelper()
	expect.Untouched(s.template(workload), s.check(ctx, title, workload, cloud, want))
}

// injected is like check for a pod that Lanyard must inject with these
// providers.
func (s scenario) injected(ctx context.Context, title, workload, cloud string, want expect.Outcome, providers string) *corev1.Pod {
	GinkgoHelper()
	pod := s.check(ctx, title, workload, cloud, want)
	Expect(pod.Annotations).To(HaveKeyWithValue("lanyard.dev/injected", providers), pod.Name)
	return pod
}
