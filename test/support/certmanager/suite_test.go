// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// namespace is the namespace of the certificates.
const namespace = "lanyard-system"

// kube is a client with administrator rights. All specs share it.
var kube client.Client

func TestCertManager(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(controlplane.Patience)
	RunSpecs(t, "cert-manager")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	By("starting etcd and kube-apiserver")
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return plane.Stop() })
	Expect(plane.CreateNamespace(ctx, namespace)).To(Succeed())

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(certmanagerv1.AddToScheme(scheme)).To(Succeed())
	kube, err = client.New(plane.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	By("starting cert-manager")
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(plane.Kubeconfig(kubeconfig)).To(Succeed())
	start("--kubeconfig", kubeconfig, "--crds", crdDirectory(ctx))
	for _, list := range []client.ObjectList{&certmanagerv1.CertificateList{}, &certmanagerv1.IssuerList{}} {
		Eventually(func() error { return kube.List(ctx, list) }).
			Should(Succeed(), "the CustomResourceDefinitions are not served")
	}
})

// start runs the program in this process until the suite ends, and checks that
// it ends without an error.
func start(args ...string) {
	GinkgoHelper()
	running, stop := context.WithCancel(context.Background()) // the node's context ends with BeforeSuite
	ended := make(chan error, 1)
	go func() { ended <- run(running, args) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	})
}

// crdDirectory returns the directory in the module cache with the
// CustomResourceDefinitions of the required cert-manager version.
func crdDirectory(ctx context.Context) string {
	GinkgoHelper()
	var problems bytes.Buffer
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager")
	list.Stderr = &problems
	dir, err := list.Output()
	Expect(err).NotTo(HaveOccurred(), problems.String())
	return filepath.Join(strings.TrimSpace(string(dir)), "deploy", "crds")
}
