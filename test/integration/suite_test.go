// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration holds the program to its promises with a real
// kube-apiserver in front of it: the webhook is a process of its own, with the
// permissions of deploy/ and no others, registered as deploy/ does.
package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/controlplane"
	"github.com/lanyard-dev/lanyard/test/webhook"
)

const deployDir = "../../deploy/base"

// cluster is what all specs share. It is set up once, before any of them.
var cluster struct {
	plane      *controlplane.ControlPlane
	client     *kubernetes.Clientset
	binary     string
	kubeconfig string // of the webhook's own service account
	webhook    *webhook.Process
}

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	suite, reporter := GinkgoConfiguration()
	suite.RandomizeAllSpecs = true
	RunSpecs(t, "integration", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	By("building the program with the race detector")
	dir := GinkgoT().TempDir()
	cluster.binary = filepath.Join(dir, "lanyard-webhook")
	build := exec.CommandContext(ctx, "go", "build", "-race", "-o", cluster.binary, "../../cmd/webhook")
	build.Stdout, build.Stderr = GinkgoWriter, GinkgoWriter
	Expect(build.Run()).To(Succeed())

	By("starting etcd and kube-apiserver")
	var err error
	cluster.plane, err = controlplane.Start(ctx, controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return cluster.plane.Stop() })
	config := cluster.plane.Config()
	config.WarningHandler = rest.NoWarnings{} // random pods have many
	cluster.client, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())

	By("starting the webhook with the permissions of deploy/")
	grant(ctx)
	config, err = cluster.plane.User("system:serviceaccount:lanyard-system:lanyard-webhook",
		"system:serviceaccounts", "system:serviceaccounts:lanyard-system", "system:authenticated")
	Expect(err).NotTo(HaveOccurred())
	cluster.kubeconfig = filepath.Join(dir, "kubeconfig")
	Expect(controlplane.WriteKubeconfig(cluster.kubeconfig, config)).To(Succeed())
	cluster.webhook, err = webhook.Start(ctx, webhook.Options{
		Binary: cluster.binary, Kubeconfig: cluster.kubeconfig, Dir: dir, Args: []string{"-v=2"},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return cluster.webhook.Stop() })

	By("registering it with the manifests of deploy/")
	Expect(cluster.webhook.Register(ctx, cluster.client, deployDir)).To(Succeed())
	waitForRegistration(ctx)
})

// grant creates the objects of deploy/ that give the webhook its permissions.
func grant(ctx context.Context) {
	GinkgoHelper()
	Expect(cluster.plane.CreateNamespace(ctx, "lanyard-system")).To(Succeed())
	_, err := cluster.client.RbacV1().ClusterRoles().Create(ctx, clusterRole(), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	var binding rbacv1.ClusterRoleBinding
	rbac(&binding)
	_, err = cluster.client.RbacV1().ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func clusterRole() *rbacv1.ClusterRole {
	GinkgoHelper()
	var role rbacv1.ClusterRole
	rbac(&role)
	return &role
}

// rbac reads the object of the kind of into from deploy/. There is one role
// and one binding in it, and nothing else.
func rbac(into runtime.Object) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(deployDir, "21-rbac.yaml"))
	Expect(err).NotTo(HaveOccurred())
	documents := bytes.Split(text, []byte("\n---\n"))
	Expect(documents).To(HaveLen(2))
	for _, document := range documents {
		var kind metav1.TypeMeta
		Expect(yaml.Unmarshal(document, &kind)).To(Succeed())
		if reflect.TypeOf(into).Elem().Name() == kind.Kind {
			Expect(yaml.UnmarshalStrict(document, into)).To(Succeed())
			return
		}
	}
	Fail(fmt.Sprintf("deploy/base/21-rbac.yaml has no %T", into))
}

// waitForRegistration waits until the apiserver calls the webhook: it learns
// of a configuration from a watch of its own.
func waitForRegistration(ctx context.Context) {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	newAccount(ctx, namespace, "probe", map[string]string{"lanyard.dev/audience": "probe"})
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
