// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	binary    = "bin/lanyard-webhook"
	deployDir = "deploy/base"
)

// startWebhook runs the webhook outside of the cluster, with the rights of the manifests and
// nothing more, and returns when the webhook is ready.
func (o *own) startWebhook(ctx context.Context) error {
	config, err := webhook.Grant(ctx, o.plane, deployDir)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(o.dir, "webhook.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w; run make build first, and run the demo in the root of the repository", err)
	}
	ctx, cancel := context.WithTimeout(ctx, controlplane.Patience)
	defer cancel()
	if o.webhook, err = webhook.Start(ctx, webhook.Options{Binary: binary, Kubeconfig: kubeconfig, Dir: o.dir, Args: []string{"--v=1"}}); err != nil {
		return err
	}
	o.ends = append(o.ends, o.webhook.Stop)
	return nil
}

// waitInEffect waits until the API server calls the webhooks, which takes a moment
// after their registration.
func (c *cluster) waitInEffect(ctx context.Context, probe *example) error {
	what := "a pod to be injected and a malformed ServiceAccount to be denied"
	return process.Until(ctx, what, controlplane.Patience, func(ctx context.Context) (bool, error) { return c.inEffect(ctx, probe) })
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
