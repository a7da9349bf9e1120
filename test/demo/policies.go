// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// waitLabelled waits until the policies label a ServiceAccount. One that is written before
// would stay without the label, and its pods without credentials.
func (c *cluster) waitLabelled(ctx context.Context) error {
	probe := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: map[string]string{prefix + "audience": "probe"}}}
	return process.Until(ctx, "a ServiceAccount to be labelled", readyTimeout, func(ctx context.Context) (bool, error) {
		created, err := c.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, probe, dryRun)
		return err == nil && created.Labels[prefix+"identity"] == "enabled", err
	})
}

// showNoProgram checks that everything before happened without a program of Lanyard: no
// pod runs the webhook, and no webhook is registered.
func (d *demo) showNoProgram(ctx context.Context) (*result, error) {
	r := &result{example: "no program", containers: "0", outcome: "(no pod of Lanyard)"}
	d.headline(r.example, "the API server did all of this by itself")
	defer d.problems(r)
	pods, err := d.cluster.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		for _, c := range containers(&pods.Items[i]) {
			r.check(!strings.Contains(c.Image, deployment), "pod %s/%s runs the image %s", pods.Items[i].Namespace, pods.Items[i].Name, c.Image)
		}
	}
	webhooks, err := d.cluster.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range webhooks.Items {
		r.check(!strings.Contains(webhooks.Items[i].Name, "lanyard"), "the webhook configuration %s is registered", webhooks.Items[i].Name)
	}
	if len(r.failures) == 0 {
		d.printf("  %s\n", d.green(fmt.Sprintf("none of the %d pods of the cluster runs lanyard-webhook, and no webhook of Lanyard is registered", len(pods.Items))))
	}
	return r, nil
}
