// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the program with a real kube-apiserver. The webhook is a
// separate process with only the permissions of deploy/, and is registered as in
// deploy/.
package integration

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const deployDir = "../../deploy/base"

// policies marks specs that need the guard or the fences. hack/test-versions.sh
// leaves them out for Kubernetes before 1.30, which supports neither.
var policies = Label("policies")

// cluster is shared by all specs and set up once, before the first.
var cluster struct {
	plane      *controlplane.ControlPlane
	client     *kubernetes.Clientset
	binary     string
	kubeconfig string // of the webhook's own service account
	config     string // the file of --config, which is empty unless a spec changes it
	webhook    *webhook.Process
}

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(startTimeout)
	suite, reporter := GinkgoConfiguration()
	suite.RandomizeAllSpecs = true
	RunSpecs(t, "integration", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	By("building the program with the race detector")
	dir := GinkgoT().TempDir()
	var err error
	cluster.binary, err = webhook.Build(ctx, dir, true)
	Expect(err).NotTo(HaveOccurred())

	By("starting etcd and kube-apiserver")
	cluster.plane, err = controlplane.Start(ctx, controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return cluster.plane.Stop() })
	config := cluster.plane.Config()
	config.WarningHandler = rest.NoWarnings{} // random pods have many
	cluster.client, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())

	By("starting the webhook with the permissions of deploy/")
	config, err = webhook.Grant(ctx, cluster.plane, deployDir)
	Expect(err).NotTo(HaveOccurred())
	cluster.kubeconfig = filepath.Join(dir, "kubeconfig")
	Expect(controlplane.WriteKubeconfig(cluster.kubeconfig, config)).To(Succeed())
	cluster.config = filepath.Join(dir, "config.yaml")
	Expect(os.WriteFile(cluster.config, nil, 0o600)).To(Succeed())
	cluster.webhook, err = webhook.Start(ctx, webhook.Options{
		Binary: cluster.binary, Kubeconfig: cluster.kubeconfig, Dir: dir, Args: []string{"-v=2", "--config=" + cluster.config},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return cluster.webhook.Stop() })

	By("registering it with the manifests of deploy/, next to the guard and the fences")
	if cluster.plane.Policies() {
		Expect(webhook.Create(ctx, cluster.plane.Config(), deployDir, webhook.Guard, webhook.Fences)).To(Succeed())
	}
	Expect(cluster.webhook.Register(ctx, cluster.client, deployDir)).To(Succeed())
	waitForRegistration(ctx)
})

// waitForRegistration waits until the API server calls the webhook. It learns of the
// configuration from its own watch.
func waitForRegistration(ctx context.Context) {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	// Add the label here, because the webhook may not be called yet.
	labelledAccount(ctx, namespace, "probe", map[string]string{"lanyard.dev/audience": "probe"})
	Eventually(ctx, func(ctx context.Context) (map[string]string, error) {
		pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("probe", "probe", 1), dryRun)
		if err != nil {
			return nil, err
		}
		return pod.Annotations, nil
	}).Within(startTimeout).Should(HaveKeyWithValue("lanyard.dev/injected", "token"))
	Eventually(ctx, func(ctx context.Context) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bad", Annotations: map[string]string{"lanyard.dev/aws-role-arn": "bad"}}}
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, dryRun)
		return err
	}).Within(startTimeout).Should(MatchError(ContainSubstring("invalid_annotation")))
}
