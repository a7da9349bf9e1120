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

// showRunning runs test/demo/whoami with the example's ServiceAccount, and prints and
// checks its output: a program in a container sees the same.
func (d *demo) showRunning(ctx context.Context, e *example) (*result, error) {
	r := &result{example: "running pod", containers: "1 of 1", outcome: "(as printed by the pod)"}
	d.headline(r.example, "what a container with the ServiceAccount "+e.name+" sees")
	defer d.problems(r)
	pod, err := d.cluster.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "whoami", Namespace: namespace},
		Spec: corev1.PodSpec{
			ServiceAccountName: e.account.Name, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "whoami", Image: d.options.image, ImagePullPolicy: corev1.PullNever}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		r.fail("the pod was denied: %v", err)
		return r, ctx.Err()
	}
	r.providers = pod.Annotations[injectedKey]
	printed, err := d.cluster.output(ctx, pod)
	if err != nil {
		r.fail("%v", err)
		return r, ctx.Err()
	}
	for line := range strings.Lines(printed) {
		d.printf("  %s", d.green(line))
	}
	r.failures = append(r.failures, missing(printed, pod, e.grants)...)
	return r, nil
}

// missing returns the parts of the grants that a container did not print.
func missing(printed string, pod *corev1.Pod, grants []grant) (problems []string) {
	lines := map[string]bool{}
	for line := range strings.Lines(printed) {
		lines[strings.TrimSpace(line)] = true
	}
	var want []string
	for _, g := range grants {
		for name, value := range sorted(g.variables) {
			want = append(want, name+"="+value)
		}
		want = append(want, fmt.Sprintf("token %s: sub system:serviceaccount:%s:%s, aud %s, pod %s",
			g.path, pod.Namespace, pod.Spec.ServiceAccountName, g.audience, pod.Name))
	}
	for _, line := range want {
		if !lines[line] {
			problems = append(problems, fmt.Sprintf("the container did not print %q", line))
		}
	}
	return problems
}

// output waits until a pod has succeeded and returns its output.
func (c *cluster) output(ctx context.Context, pod *corev1.Pod) (string, error) {
	var last corev1.PodStatus
	err := process.Until(ctx, "pod "+pod.Name, slow, func(ctx context.Context) (bool, error) {
		got, err := c.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = got.Status
		return last.Phase == corev1.PodSucceeded || last.Phase == corev1.PodFailed, nil
	})
	if err != nil {
		return "", fmt.Errorf("got phase %s, want %s: %w", last.Phase, corev1.PodSucceeded, err)
	}
	text, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	return string(text), err
}
