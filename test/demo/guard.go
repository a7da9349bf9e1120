// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const guardName = "lanyard-guard-pods"

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// installGuard installs the guard and waits until it is in effect. It labels
// the probe's ServiceAccount itself, because the webhook is not registered yet.
func (c *cluster) installGuard(ctx context.Context, probe *example) error {
	if err := webhook.Create(ctx, c.config, deployDir, webhook.Guard); err != nil {
		return err
	}
	label := []byte(`{"metadata":{"labels":{"` + prefix + `identity":"enabled"}}}`)
	_, err := c.CoreV1().ServiceAccounts(namespace).Patch(ctx, probe.account.Name, types.MergePatchType, label, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return process.Until(ctx, "the guard to deny a pod", controlplane.Patience, func(ctx context.Context) (bool, error) {
		_, err := c.tryAnother(ctx, probe)
		return isGuards(err), ctx.Err()
	})
}

// tryAnother creates a second pod of an example without storing it. The second pod has
// another name, because the first pod may already exist.
func (c *cluster) tryAnother(ctx context.Context, e *example) (*corev1.Pod, error) {
	pod := e.pod.DeepCopy()
	pod.Name += "-2"
	return c.CoreV1().Pods(namespace).Create(ctx, pod, dryRun)
}

func isGuards(err error) bool { return err != nil && strings.Contains(err.Error(), guardName) }

// showGuard stops the webhook and creates two pods: one with an annotated
// ServiceAccount, which the API server must deny, and one without, which it must
// create.
func (d *demo) showGuard(ctx context.Context, annotated, other *example) (*result, error) {
	r := &result{example: "guard", containers: "denied", outcome: "(others created)"}
	d.headline(r.example, d.outage.what)
	defer d.problems(r)
	begin := d.outage.begin(ctx)
	denied, created := make(chan error, 1), make(chan error, 1)
	try := func(e *example, to chan<- error) {
		_, err := d.cluster.tryAnother(ctx, e)
		to <- err
	}
	go try(annotated, denied)
	go try(other, created)
	deniedErr, createdErr := <-denied, <-created
	// Restore it even after an interrupt, because the webhook may serve others.
	if err := errors.Join(begin, d.outage.end(context.WithoutCancel(ctx)), ctx.Err()); err != nil {
		return nil, err
	}
	if r.check(isGuards(deniedErr), "the pod of %s: got %v, want a denial by the guard", annotated.name, deniedErr); deniedErr != nil {
		d.printf("  a pod of the ServiceAccount %s %s\n", annotated.name, d.red("was denied:"))
		for text := range wrap(deniedErr.Error(), maxWidth-4) {
			d.printf("    %s\n", text)
		}
	}
	if r.check(createdErr == nil, "the pod of %s: got %v, want no error", other.name, createdErr); createdErr == nil {
		d.printf("  a pod of the ServiceAccount %s %s\n", other.name, d.green("was created as usual"))
	}
	return r, nil
}
