// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/test/integration/abuse"
)

const (
	// hoards is the number of namespaces with very many ServiceAccounts of the
	// longest valid size. All of them together take more memory than the limit, which is a
	// quarter of the chart's.
	hoards   = 26
	inAHoard = 250
)

// It has a separate control plane, because there are too many objects to delete.
var _ = It("starts among 6,500 ServiceAccounts of the longest valid size, and injects the pods of each", func(ctx SpecContext) {
	c := newCluster(ctx)
	c.limit = memoryLimit / 4
	createHoards(ctx, c)
	c.installGuard(ctx)
	r := newReplica(ctx, c, c.user)
	r.survives(ctx, func(ctx context.Context) {
		// The webhook cannot cache all of them, so it reads some when a pod is created.
		for i := range hoards {
			pod := newPod(hoardedName(i * 7 % inAHoard))
			pod.Namespace = hoardName(i)
			Eventually(ctx, func(ctx context.Context) error { return r.injectsPod(ctx, pod) }).
				Should(Succeed(), "%s/%.10s", pod.Namespace, pod.Spec.ServiceAccountName)
		}
	})
})

func hoardName(i int) string { return fmt.Sprintf("hoard-%d", i) }

func hoardedName(i int) string { return fmt.Sprintf("f%d-%s", i, strings.Repeat("a", 240)) }

// createHoards creates the ServiceAccounts while there is no webhook that could
// slow them down.
func createHoards(ctx context.Context, c *cluster) {
	GinkgoHelper()
	config := c.plane.Config()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range hoards {
		group.Go(func() error { return createHoard(ctx, client, hoardName(i)) })
	}
	Expect(group.Wait()).To(Succeed())
}

func createHoard(ctx context.Context, client kubernetes.Interface, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range inAHoard {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: hoardedName(i), Labels: map[string]string{"lanyard.dev/identity": "enabled"}, Annotations: abuse.LongestIdentity(),
		}}
		if _, err := client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
