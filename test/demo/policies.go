// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// showNoProgram checks that everything so far happened without a program of Lanyard: no
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
