// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// serviceTimeout limits one request through a Service.
const serviceTimeout = 500 * time.Millisecond

// startContainerd starts containerd and imports the images.
func (c *cluster) startContainerd(ctx context.Context) error {
	err := c.startComponent("containerd", "containerd", "--config", filepath.Join(c.Dir, "containerd.toml"))
	if err != nil {
		return err
	}
	err = waitFor(ctx, "containerd", "its version", func(ctx context.Context) error {
		return ctr(ctx, "version")
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, archive := range append([]string{c.Pause}, c.Images...) {
		group.Go(func() error {
			// The namespace that the kubelet uses.
			if err := ctr(ctx, "--namespace=k8s.io", "images", "import", archive); err != nil {
				return &componentError{"containerd", fmt.Errorf("import the image %s: %w", archive, err)}
			}
			return nil
		})
	}
	return group.Wait()
}

// ctr runs containerd's client.
func ctr(ctx context.Context, args ...string) error {
	args = append([]string{"--address=" + containerdSocket}, args...)
	if out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ctr: %w: %s", err, out)
	}
	return nil
}

// nodeReady returns an error while the node cannot run pods.
func (c *cluster) nodeReady(ctx context.Context) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("not ready: %s", condition.Message)
		}
	}
	if len(node.Status.Conditions) == 0 {
		return errors.New("no conditions yet")
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("still tainted with %s", node.Spec.Taints[0].ToString())
	}
	return nil
}

// defaultNamespaceReady returns an error while pods cannot be created in the
// namespace default: a pod needs its ServiceAccount and the cluster's CA.
func (c *cluster) defaultNamespaceReady(ctx context.Context) error {
	if _, err := c.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}
	_, err := c.client.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	return err
}

// serviceAnswers connects to kube-apiserver through its Service, as pods do.
func (c *cluster) serviceAnswers(ctx context.Context) error {
	config := rest.CopyConfig(c.admin)
	config.Host = "https://" + kubernetesIP
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// Until kube-proxy has written its rules, packets to this address are lost.
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}
