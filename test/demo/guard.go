// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const guardName = "lanyard-guard-pods"

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// installGuard installs the guard, and waits until it is in effect. There is no
// webhook yet to label the account of the probe.
func (c *cluster) installGuard(ctx context.Context, probe *example) error {
	if err := webhook.Guard(ctx, c.Config(), deployDir); err != nil {
		return err
	}
	label := []byte(`{"metadata":{"labels":{"` + prefix + `identity":"enabled"}}}`)
	_, err := c.CoreV1().ServiceAccounts(namespace).Patch(ctx, probe.account.Name, types.MergePatchType, label, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Pods(namespace).Create(ctx, probe.pod, dryRun)
		return isGuards(err), ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("waiting for the guard to refuse a pod: %w", err)
	}
	return nil
}

func isGuards(err error) bool { return err != nil && strings.Contains(err.Error(), guardName) }

// showGuard has the webhook hang, and tries a pod that asks for an identity,
// which the API server has to refuse, and one that does not, which it has to
// create. Each waits for the webhook's timeout.
func (d *demo) showGuard(ctx context.Context, asks, other *example) (*result, error) {
	r := &result{example: "guard", containers: "refused", outcome: "(others pass)"}
	d.headline(r.example, "the webhook hangs, and the API server decides by itself")
	defer d.problems(r)
	if err := d.webhook.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	refused, passed := make(chan error, 1), make(chan error, 1)
	try := func(e *example, to chan<- error) {
		pod := e.pod.DeepCopy()
		pod.Name += "-2" // the first is there already
		_, err := d.cluster.CoreV1().Pods(namespace).Create(ctx, pod, dryRun)
		to <- err
	}
	go try(asks, refused)
	go try(other, passed)
	no, yes := <-refused, <-passed
	if err := errors.Join(d.webhook.Signal(syscall.SIGCONT), ctx.Err()); err != nil {
		return nil, err
	}
	if r.check(isGuards(no), "the pod of %s: got %v, want a refusal of the guard", asks.name, no); no != nil {
		d.printf("  a pod of the account %s %s\n", asks.name, d.red("was refused:"))
		for text := range wrap(no.Error(), maxWidth-4) {
			d.printf("    %s\n", text)
		}
	}
	if r.check(yes == nil, "the pod of %s: got %v, want none", other.name, yes); yes == nil {
		d.printf("  a pod of the account %s %s\n", other.name, d.green("was created as ever"))
	}
	return r, nil
}
