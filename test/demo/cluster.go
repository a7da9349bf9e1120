// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// namespace is the namespace of all objects in examples/.
const namespace = "lanyard-demo"

// cluster is a control plane and clients with administrator rights.
type cluster struct {
	*controlplane.ControlPlane
	kubernetes.Interface
	objects    client.Client // for objects of any kind
	kubeconfig string
}

// startCluster starts the control plane, with its logs in dir. If it fails, it
// leaves nothing running.
func startCluster(ctx context.Context, dir string) (*cluster, error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{LogDir: dir})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane, kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return c, nil
}

func (c *cluster) connect(ctx context.Context) (err error) {
	if c.Interface, err = kubernetes.NewForConfig(c.Config()); err != nil {
		return err
	}
	if c.objects, err = client.New(c.Config(), client.Options{Scheme: scheme.Scheme}); err != nil {
		return err
	}
	return errors.Join(c.Kubeconfig(c.kubeconfig), c.CreateNamespace(ctx, namespace))
}

// createServiceAccounts creates the examples' ServiceAccounts and records how
// their pods look without Lanyard, because the API server sets defaults of its
// own.
func (c *cluster) createServiceAccounts(ctx context.Context, examples []*example) error {
	for _, e := range examples {
		if err := c.objects.Create(ctx, e.account.DeepCopy()); err != nil {
			return fmt.Errorf("serviceaccount %s: %w", e.account.Name, err)
		}
		without, err := c.CoreV1().Pods(namespace).Create(ctx, e.pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("pod %s without the webhook: %w", e.pod.Name, err)
		}
		e.without = without
	}
	return nil
}

// publishedKeys reads the keys with which a cloud would verify a token.
func (c *cluster) publishedKeys(ctx context.Context) (keySet, error) {
	document, err := c.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the issuer's keys: %w", err)
	}
	return parseKeys(document)
}
