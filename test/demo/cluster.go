// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

// namespace is the namespace of all objects in examples/.
const namespace = "lanyard-demo"

// cluster contains clients with administrator rights.
type cluster struct {
	kubernetes.Interface
	config *rest.Config
}

func connect(config *rest.Config) (*cluster, error) {
	c := &cluster{config: config}
	var err error
	if c.Interface, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	return c, nil
}

// createServiceAccounts creates the examples' ServiceAccounts and records their pods
// without Lanyard, including the defaults that the API server sets. Lanyard must not be
// in effect yet.
func (c *cluster) createServiceAccounts(ctx context.Context, examples []*example) error {
	for _, e := range examples {
		if err := podstream.CreateServiceAccount(ctx, c.CoreV1().ServiceAccounts(namespace), e.account); err != nil {
			return fmt.Errorf("serviceaccount %s: %w", e.account.Name, err)
		}
		var err error
		if e.without, err = c.CoreV1().Pods(namespace).Create(ctx, e.pod, dryRun); err != nil {
			return fmt.Errorf("pod %s without the webhook: %w", e.pod.Name, err)
		}
	}
	return nil
}
