// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package availability_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// attack attacks a replica from a pod without rights in the namespace, for the given
// duration. The namespace has the ServiceAccount account. attack returns the
// outcomes of the connections and requests.
func attack(ctx context.Context, replica *corev1.Pod, namespace, account string, duration time.Duration) (string, error) {
	attacker, err := cluster.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "abuse-", Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "abuse", Image: framework.AbuseImage, ImagePullPolicy: corev1.PullNever,
				Args: []string{
					"--reviews=" + address(replica, "webhook"), "--metrics=" + address(replica, "metrics"), "--health=" + address(replica, "probes"),
					"--namespace=" + namespace, "--service-account=" + account, "--for=" + duration.String(),
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("abuse: %w", err)
	}
	if err := cluster.WaitPhase(ctx, attacker, corev1.PodSucceeded); err != nil {
		return "", err
	}
	tally, err := cluster.CoreV1().Pods(namespace).GetLogs(attacker.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log of pod %s/%s: %w", namespace, attacker.Name, err)
	}
	return strings.TrimSpace(string(tally)), nil
}

// address returns the host:port of a named port of a replica, for other pods.
func address(pod *corev1.Pod, name string) string {
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(framework.Port(pod, name)))
}
