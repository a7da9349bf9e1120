// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespace is the namespace of all objects in examples/.
const namespace = "lanyard-demo"

// cluster holds clients with administrator rights.
type cluster struct {
	kubernetes.Interface
	config  *rest.Config
	objects client.Client // for objects of any kind
}

func connect(config *rest.Config) (*cluster, error) {
	c := &cluster{config: config}
	var err error
	if c.Interface, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	if c.objects, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, fmt.Errorf("create the client for manifests: %w", err)
	}
	return c, nil
}

// createServiceAccounts creates the examples' ServiceAccounts and records how
// their pods look without Lanyard, because the API server sets defaults of its
// own.
func (c *cluster) createServiceAccounts(ctx context.Context, examples []*example) error {
	for _, e := range examples {
		if err := c.createServiceAccount(ctx, e.account); err != nil {
			return fmt.Errorf("serviceaccount %s: %w", e.account.Name, err)
		}
	}
	return c.recordWithout(ctx, examples)
}

// createServiceAccount tries again while the call of the webhook fails: right after an
// install, the node forwards calls to a ready replica only a moment later.
func (c *cluster) createServiceAccount(ctx context.Context, account *corev1.ServiceAccount) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		last = c.objects.Create(ctx, account.DeepCopy())
		if apierrors.IsInternalError(last) {
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) {
		return last
	}
	return err
}

// recordWithout records how the examples' pods look without Lanyard, which must not
// be in effect yet.
func (c *cluster) recordWithout(ctx context.Context, examples []*example) error {
	for _, e := range examples {
		without, err := c.CoreV1().Pods(namespace).Create(ctx, e.pod, dryRun)
		if err != nil {
			return fmt.Errorf("pod %s without the webhook: %w", e.pod.Name, err)
		}
		e.without = without
	}
	return nil
}
