// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package callers_test checks, with a real kube-apiserver, that only callers with a client
// certificate may call the webhook.
package callers_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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

const (
	deployDir     = "../../../deploy/base"
	examples      = "../../../examples/callers"
	configuration = "lanyard"
	namespace     = "team"
)

// cluster contains what all specs share.
var cluster struct {
	client     *kubernetes.Clientset // an administrator's
	binary     string
	kubeconfig string // of the webhook's ServiceAccount
	pki        pki
	port       string // the API server presents a client certificate to this one
}

func TestCallers(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(controlplane.Patience)
	RunSpecs(t, "callers")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	var err error
	cluster.binary, err = webhook.Build(ctx, dir, false)
	Expect(err).NotTo(HaveOccurred())

	By("starting kube-apiserver with a client certificate for the webhook")
	cluster.pki = newPKI(dir)
	ports, err := webhook.FreePorts(ctx, 1)
	Expect(err).NotTo(HaveOccurred())
	cluster.port = ports[0]
	plane, err := controlplane.Start(ctx, controlplane.Options{APIServerFlags: map[string]string{
		"admission-control-config-file": writeAdmissionConfiguration(dir, "127.0.0.1:"+cluster.port),
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	config := plane.Config()
	config.WarningHandler = rest.NoWarnings{}
	cluster.client = kubernetes.NewForConfigOrDie(config)

	By("creating the rights of deploy/, and ServiceAccounts")
	user, err := webhook.Grant(ctx, plane, deployDir)
	Expect(err).NotTo(HaveOccurred())
	cluster.kubeconfig = filepath.Join(dir, "kubeconfig")
	Expect(controlplane.WriteKubeconfig(cluster.kubeconfig, user)).To(Succeed())
	Expect(webhook.Create(ctx, config, deployDir, "22-certificates-rbac.yaml")).To(Succeed())
	Expect(plane.CreateNamespace(ctx, namespace)).To(Succeed())
	_, err = cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: "app", Labels: map[string]string{"lanyard.dev/identity": "enabled"}, Annotations: map[string]string{"lanyard.dev/audience": "test"},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
})

// writeAdmissionConfiguration writes the files of examples/callers into dir, where the
// certificate is, for the webhook's host.
func writeAdmissionConfiguration(dir, host string) string {
	GinkgoHelper()
	here := strings.NewReplacer("/etc/kubernetes/lanyard", dir, "lanyard-webhook.lanyard-system.svc", host)
	for _, name := range []string{"kubeconfig.yaml", "admission.yaml"} {
		text, err := os.ReadFile(filepath.Join(examples, name))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dir, name), []byte(here.Replace(string(text))), 0o600)).To(Succeed())
	}
	return filepath.Join(dir, "admission.yaml")
}

// start runs a webhook until the spec ends.
func start(ctx context.Context, options webhook.Options) *webhook.Process {
	GinkgoHelper()
	options.Binary, options.Kubeconfig, options.Dir = cluster.binary, cluster.kubeconfig, GinkgoT().TempDir()
	process, err := webhook.Start(ctx, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(process.Stop)
	return process
}

// register registers the webhook until the spec ends.
func register(ctx context.Context, process *webhook.Process) {
	GinkgoHelper()
	Expect(process.Register(ctx, cluster.client, deployDir)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		api := cluster.client.AdmissionregistrationV1()
		Expect(api.MutatingWebhookConfigurations().Delete(ctx, configuration, metav1.DeleteOptions{})).To(Succeed())
		Expect(api.ValidatingWebhookConfigurations().Delete(ctx, configuration, metav1.DeleteOptions{})).To(Succeed())
	})
}

// createPod creates a pod as a dry run. It returns an error unless the pod was
// injected.
func createPod(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
	created, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	if created.Annotations["lanyard.dev/injected"] == "" {
		return fmt.Errorf("the pod was created without credentials")
	}
	return nil
}

// post sends an empty request to the URL, and returns the status.
func post(ctx context.Context, url string, config *tls.Config) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, controlplane.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	config.InsecureSkipVerify = true
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: controlplane.Patience}).DialContext}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func logOf(process *webhook.Process) string {
	GinkgoHelper()
	text, err := os.ReadFile(process.LogFile)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}
