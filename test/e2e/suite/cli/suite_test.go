// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli_test runs the commands of lanyard in terminals, with and without colours,
// against a whole cluster and emulated clouds. It compares the screens with the
// recordings in testdata/pages, which the flag -update writes.
package cli_test

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// The namespaces: one with workloads, one with pods of every kind, and one that Lanyard is
// not called for.
const (
	shop    = "shop"
	staging = "staging"
	legacy  = "legacy"
)

var update = flag.Bool("update", false, "write the recordings in testdata/pages")

// Shared by all specs.
var (
	cluster *framework.Cluster
	clouds  *framework.Clouds
	install = framework.Install{Values: []string{"shutdownDelaySeconds=0"}}
	// user is the user who types the commands: their directory, and their environment.
	user struct {
		directory   string
		environment []string
	}
)

var (
	//go:embed testdata/trust.yaml
	trust string
	//go:embed testdata/shop.yaml
	shopAccounts []byte
	//go:embed testdata/staging.yaml
	stagingAccounts []byte
	//go:embed testdata/legacy.yaml
	legacyAccounts []byte
)

func TestCLI(t *testing.T) { expect.Suite(t, "cli") }

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = framework.Connect()
	Expect(err).NotTo(HaveOccurred())
	// status lists all namespaces, including those that other suites are deleting.
	Eventually(ctx, terminating).Should(BeEmpty())
	clouds, err = cluster.StartClouds(ctx, trust)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return clouds.Stop(ctx) })
	setUpUser()
})

// terminating returns the namespaces that are being deleted.
func terminating(ctx context.Context) ([]string, error) {
	all, err := cluster.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all.Items {
		if all.Items[i].DeletionTimestamp != nil {
			names = append(names, all.Items[i].Name)
		}
	}
	return names, nil
}

// setUpUser makes a directory, and the programs lanyard and kubectl
// lanyard. The clouds are reached through a proxy.
func setUpUser() {
	GinkgoHelper()
	user.directory = GinkgoT().TempDir()
	programs := GinkgoT().TempDir()
	for _, name := range []string{"lanyard", "kubectl-lanyard"} {
		Expect(os.Symlink(filepath.Join(cluster.Root, "bin", "lanyard"), filepath.Join(programs, name))).To(Succeed())
	}
	n := newInternet()
	n.addClouds(emulator.Hosts(), clouds.CA())
	n.addSite("issuer.example.com", "/production", filepath.Join(user.directory, "issuer"))
	// This name is not public, but it is the issuer of the cluster.
	n.addServer("kubernetes.default.svc.cluster.local", cached(filepath.Join(user.directory, "cluster")))
	n.addServer("sts.eu-west-2.amazonaws.com", http.HandlerFunc(throttle))
	ca := filepath.Join(programs, "ca.pem")
	Expect(os.WriteFile(ca, n.ca, 0o600)).To(Succeed())
	server, err := url.Parse(cluster.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	user.environment = []string{
		"PATH=" + programs + ":" + os.Getenv("PATH"),
		"KUBECONFIG=" + cluster.Kubeconfig,
		"HTTPS_PROXY=" + n.url, "NO_PROXY=" + server.Hostname(),
		"SSL_CERT_FILE=" + ca,
	}
}

// ends are cleanup functions, which run in reverse order after all specs.
var ends []func(context.Context) error

func atTheEnd(do func(context.Context) error) { ends = append(ends, do) }

// setUp creates a namespace with its ServiceAccounts.
func setUp(ctx context.Context, name string, labels map[string]string, accounts []byte) {
	GinkgoHelper()
	Expect(cluster.SetUp(ctx, clouds, name, labels, accounts)).To(Succeed())
	atTheEnd(func(ctx context.Context) error { return cluster.DeleteNamespace(ctx, name) })
}

// isInstalled reports whether installed has been called.
var isInstalled bool

// installed installs Lanyard once, and creates the ServiceAccounts and pods of the specs.
func installed(ctx context.Context) {
	GinkgoHelper()
	if isInstalled {
		return
	}
	isInstalled = true
	Expect(install.Up(ctx, cluster)).To(Succeed())
	atTheEnd(func(ctx context.Context) error { return install.Down(ctx, cluster) })
	Expect(cluster.WaitReady(ctx)).To(HaveLen(2))
	setUp(ctx, shop, nil, shopAccounts)
	setUp(ctx, staging, nil, stagingAccounts)
	setUp(ctx, legacy, map[string]string{"lanyard.dev/inject": "disabled"}, legacyAccounts)
	Expect(cluster.WaitInjected(ctx, shop, "cart")).To(Succeed())
	newDeployment(ctx, "cart", journal.AWS)
	newDeployment(ctx, "reports", journal.GCP)
	newPod(ctx, staging, "cart-0", "cart", nil)
	newPod(ctx, staging, "web-0", "web", nil)
	newPod(ctx, staging, "search-0", "search", nil)
	newPod(ctx, staging, "cart-debug", "cart", map[string]string{"lanyard.dev/inject": "false"})
	newPod(ctx, staging, "cart-proxied", "cart", map[string]string{"lanyard.dev/skip-containers": "proxy"}, "proxy")
	newPod(ctx, staging, "late-0", "late", nil)
	newPod(ctx, legacy, "cart-0", "cart", nil)
	// The times in an object are in seconds.
	time.Sleep(time.Second)
	annotate(ctx, staging, "late", "lanyard.dev/aws-role-arn=arn:aws:iam::111122223333:role/late")
}

// newDeployment creates a Deployment whose pod gets a credential of a cloud, and
// then waits.
func newDeployment(ctx context.Context, name, cloud string) {
	GinkgoHelper()
	pod := framework.SDKPod(name, framework.Go, "--forever", cloud)
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	clouds.Redirect(&pod.Spec)
	labels := map[string]string{"app": name}
	_, err := cluster.AppsV1().Deployments(shop).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	rolledOut(ctx, name)
}

// rolledOut waits until all pods of a Deployment are new and available, and the old
// ones are gone.
func rolledOut(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := cluster.Run(ctx, "kubectl", "rollout", "status", "deployment/"+name, "--namespace", shop, "--timeout", expect.Patience.String())
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func(ctx context.Context) error {
		pods, err := cluster.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("got %d pods of %s, want 1", len(pods.Items), name)
		}
		return err
	}).Should(Succeed())
}

// newPod creates a pod that is never started, with a container main and perhaps others.
func newPod(ctx context.Context, namespace, name, account string, annotations map[string]string, others ...string) {
	GinkgoHelper()
	pod := framework.SDKPod(account, framework.Go, "aws")
	pod.ObjectMeta = metav1.ObjectMeta{Name: name, Annotations: annotations}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/never"}}
	container := pod.Spec.Containers[0]
	pod.Spec.Containers = nil
	for _, name := range append([]string{"main"}, others...) {
		container.Name = name
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	_, err := cluster.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// annotate sets an annotation of a ServiceAccount.
func annotate(ctx context.Context, namespace, account, annotation string) {
	GinkgoHelper()
	_, err := cluster.Run(ctx, "kubectl", "annotate", "serviceaccount", account, "--namespace", namespace, "--overwrite", annotation)
	Expect(err).NotTo(HaveOccurred())
}

// makeStale gives the ServiceAccount cart another role than its pod has, and waits
// until new pods get it.
func makeStale(ctx context.Context) {
	GinkgoHelper()
	rolledOut(ctx, "cart")
	pods, err := cluster.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{LabelSelector: "app=cart"})
	Expect(err).NotTo(HaveOccurred())
	const first, second = "arn:aws:iam::111122223333:role/cart", "arn:aws:iam::111122223333:role/cart-v2"
	role := first
	if roleOf(&pods.Items[0]) == first {
		role = second
	}
	annotate(ctx, shop, "cart", "lanyard.dev/aws-role-arn="+role)
	pod := framework.SDKPod("cart", framework.Go, "aws")
	Eventually(ctx, func(ctx context.Context) error {
		got, err := cluster.CoreV1().Pods(shop).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if roleOf(got) != role {
			err = fmt.Errorf("a new pod gets the role %q, want %q", roleOf(got), role)
		}
		return err
	}).Should(Succeed())
}

// roleOf returns the role that a pod was given.
func roleOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == "AWS_ROLE_ARN" {
			return v.Value
		}
	}
	return ""
}
