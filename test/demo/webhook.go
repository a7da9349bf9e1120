// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

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
// ready. Where it fails, it leaves nothing running.
func startWebhook(ctx context.Context, c *cluster, dir string) (*webhook.Process, error) {
	kubeconfig, err := webhookKubeconfig(ctx, c, dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w; run make build, and the demo in the repository's root", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return webhook.Start(ctx, webhook.Options{Binary: binary, Kubeconfig: kubeconfig, Dir: dir, Args: []string{"--v=1"}})
}

// webhookKubeconfig gives the webhook the account and the role that the
// manifests give it in a cluster, and nothing else.
func webhookKubeconfig(ctx context.Context, c *cluster, dir string) (string, error) {
	config, err := webhook.Grant(ctx, c.ControlPlane, deployDir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "webhook.kubeconfig")
	return path, controlplane.WriteKubeconfig(path, config)
}

// register registers the webhook as the manifests do, with nothing changed but
// the way to it, and waits until that is in effect: an apiserver learns of it a
// moment later.
func (c *cluster) register(ctx context.Context, w *webhook.Process, probe *example) error {
	if err := w.Register(ctx, c, deployDir); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		return c.inEffect(ctx, probe)
	})
	if err != nil {
		return fmt.Errorf("waiting for a pod to be injected and a malformed account to be refused: %w", err)
	}
	return nil
}

// inEffect tries the webhooks without storing anything: a pod of the example
// has to be injected, a malformed account to be refused.
func (c *cluster) inEffect(ctx context.Context, probe *example) (bool, error) {
	pod, err := c.CoreV1().Pods(namespace).Create(ctx, probe.pod, dryRun)
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
	return pod.Annotations[injectedKey] != "" && err != nil, nil
}

// tail returns the last lines of a file, nothing where it does not exist.
func tail(file string, lines int) string {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
