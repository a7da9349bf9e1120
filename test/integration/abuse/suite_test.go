// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	deployDir = "../../../deploy/base"
	// memoryLimit is the chart's.
	memoryLimit = 128 << 20
)

// binary is the program under test.
var binary string

// shared is the control plane of all specs but one.
var shared *cluster

func TestAbuse(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "abuse")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrllog.SetLogger(logr.Discard()) // errors contain everything
	// $ABUSE_BINARY is another build of the program, to find out which build makes a
	// spec fail.
	binary = os.Getenv("ABUSE_BINARY")
	if binary == "" {
		By("building the program as it is shipped")
		var err error
		binary, err = webhook.Build(ctx, GinkgoT().TempDir(), false)
		Expect(err).NotTo(HaveOccurred())
	}
	shared = newCluster(ctx)
	shared.installGuard(ctx)
})

// cluster is a control plane with the webhook's permissions and the guard.
type cluster struct {
	plane  *controlplane.ControlPlane
	client *kubernetes.Clientset // an administrator's
	user   *rest.Config          // the webhook's ServiceAccount
	limit  int64                 // of the webhook's memory, in bytes
}

// newCluster starts a control plane that ends with the spec or the suite.
func newCluster(ctx context.Context) *cluster {
	GinkgoHelper()
	By("starting etcd and kube-apiserver")
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	c := &cluster{plane: plane, limit: memoryLimit}
	config := plane.Config()
	config.WarningHandler = rest.NoWarnings{}
	c.client, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	c.user, err = webhook.Grant(ctx, plane, deployDir)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// installGuard adds the guard, which costs some time for each object that is created.
func (c *cluster) installGuard(ctx context.Context) {
	GinkgoHelper()
	Expect(webhook.Create(ctx, c.plane.Config(), deployDir, webhook.Guard)).To(Succeed())
}
