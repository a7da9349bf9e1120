// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	binary       = "bin/lanyard-webhook"
	deployDir    = "deploy/base"
	readyTimeout = 30 * time.Second
)

// startWebhook runs the webhook outside of the cluster and returns when it is
// ready.
func (o *own) startWebhook(ctx context.Context) error {
	kubeconfig, err := webhookKubeconfig(ctx, o.plane, o.dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w; run make build first, and run the demo in the root of the repository", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if o.webhook, err = webhook.Start(ctx, webhook.Options{Binary: binary, Kubeconfig: kubeconfig, Dir: o.dir, Args: []string{"--v=1"}}); err != nil {
		return err
	}
	o.ends = append(o.ends, o.webhook.Stop)
	return nil
}

// webhookKubeconfig writes a kubeconfig with the ServiceAccount and the RBAC
// rules of the manifests, and nothing more.
func webhookKubeconfig(ctx context.Context, plane *controlplane.ControlPlane, dir string) (string, error) {
	config, err := webhook.Grant(ctx, plane, deployDir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "webhook.kubeconfig")
	return path, controlplane.WriteKubeconfig(path, config)
}

// waitInEffect waits until the API server calls the webhooks, which it does a moment
// after it was told to.
func (c *cluster) waitInEffect(ctx context.Context, probe *example) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		return c.inEffect(ctx, probe)
	})
	if err != nil {
		return fmt.Errorf("wait for a pod to be injected and a malformed ServiceAccount to be denied: %w", err)
	}
	return nil
}

// inEffect tries the webhooks without storing anything: the example's pod must
// be injected, and a malformed ServiceAccount must be denied.
func (c *cluster) inEffect(ctx context.Context, probe *example) (bool, error) {
	pod, err := c.tryAnother(ctx, probe)
	if isGuards(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	account := probe.account.DeepCopy()
	account.Name = "probe"
	account.Annotations = map[string]string{roleARNKey: "malformed"}
	_, err = c.CoreV1().ServiceAccounts(namespace).Create(ctx, account, dryRun)
	denied := err != nil && !apierrors.IsInternalError(err) // an internal error means that the call failed
	return pod.Annotations[injectedKey] != "" && denied, nil
}
