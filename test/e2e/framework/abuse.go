// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Abuse attacks a replica from a pod without rights in the namespace, for the given
// duration. The namespace has the ServiceAccount account. Abuse returns the
// outcomes of the connections and requests.
func (c *Cluster) Abuse(ctx context.Context, replica *corev1.Pod, namespace, account string, duration time.Duration) (string, error) {
	attacker, err := c.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "abuse-", Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "abuse", Image: AbuseImage, ImagePullPolicy: corev1.PullNever,
				Args: []string{
					"--reviews=" + Address(replica, "webhook"), "--metrics=" + Address(replica, "metrics"), "--health=" + Address(replica, "probes"),
					"--namespace=" + namespace, "--service-account=" + account, "--for=" + duration.String(),
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("abuse: %w", err)
	}
	if err := c.waitPhase(ctx, attacker, corev1.PodSucceeded); err != nil {
		return "", err
	}
	tally, err := c.CoreV1().Pods(namespace).GetLogs(attacker.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log of pod %s/%s: %w", namespace, attacker.Name, err)
	}
	return strings.TrimSpace(string(tally)), nil
}
