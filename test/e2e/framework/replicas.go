// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// Replicas lists the webhook's pods, including those that are being deleted.
func (c *Cluster) Replicas(ctx context.Context) ([]corev1.Pod, error) {
	deployment, err := c.AppsV1().Deployments(Namespace).Get(ctx, Deployment, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := c.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector)})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// WaitReady waits until the desired number of replicas is ready and no other
// replica exists.
func (c *Cluster) WaitReady(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var replicas []corev1.Pod
	err := process.Poll(ctx, "ready replicas", func(ctx context.Context) error {
		deployment, err := c.AppsV1().Deployments(Namespace).Get(ctx, Deployment, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if replicas, err = c.Replicas(ctx); err != nil {
			return err
		}
		want, ready := int(*deployment.Spec.Replicas), 0
		for i := range replicas {
			if isReady(&replicas[i]) {
				ready++
			}
		}
		if len(replicas) != want || ready != want {
			err = fmt.Errorf("got %d replicas of which %d are ready, want %d", len(replicas), ready, want)
		}
		return err
	})
	return replicas, err
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// Container returns the status of a pod's container, or a zero value if it is
// missing.
func Container(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// KillContainer starts to send SIGKILL to the processes of a container. done waits
// until this has finished.
func (c *Cluster) KillContainer(ctx context.Context, pod *corev1.Pod, name string) (done func(context.Context) error, err error) {
	// containerd://ID
	_, id, ok := strings.Cut(Container(pod, name).ContainerID, "://")
	if !ok {
		return nil, fmt.Errorf("kill: container %s of pod %s has no ID", name, pod.Name)
	}
	killer, err := c.kill(ctx, pod.Spec.NodeName, "once", id)
	return func(ctx context.Context) error {
		if err := c.WaitPhase(ctx, killer, corev1.PodSucceeded); err != nil {
			return err
		}
		return c.CoreV1().Pods(killer.Namespace).Delete(ctx, killer.Name, metav1.DeleteOptions{})
	}, err
}

// KillPods sends SIGKILL to all processes of the pods except the pause processes, and to
// their replacements, until stop is called. When it returns, some processes have been killed.
func (c *Cluster) KillPods(ctx context.Context, pods []corev1.Pod) (stop func(context.Context) error, err error) {
	var ids []string
	for i := range pods {
		if got, want := pods[i].Spec.NodeName, pods[0].Spec.NodeName; got != want {
			return nil, fmt.Errorf("kill: got replicas on nodes %s and %s, want one node", got, want)
		}
		uid := string(pods[i].UID)
		// The two cgroup drivers write the UID differently.
		ids = append(ids, uid, strings.ReplaceAll(uid, "-", "_"))
	}
	killer, err := c.kill(ctx, pods[0].Spec.NodeName, "always", ids...)
	if err != nil {
		return nil, err
	}
	stop = func(ctx context.Context) error {
		_, err := c.Run(ctx, "kubectl", "delete", "pod", killer.Name, "--namespace", killer.Namespace, "--grace-period", "1")
		return err
	}
	if err := c.waitKilled(ctx, killer); err != nil {
		return nil, errors.Join(err, stop(ctx))
	}
	return stop, nil
}

// waitKilled waits until the program has killed processes: its pod runs before.
func (c *Cluster) waitKilled(ctx context.Context, killer *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return process.Poll(ctx, "the first killed process", func(ctx context.Context) error {
		text, err := c.CoreV1().Pods(killer.Namespace).GetLogs(killer.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.Contains(string(text), "killed") {
			err = fmt.Errorf("got the log %q", text)
		}
		return err
	})
}

//go:embed kill.py
var killProgram string

// kill starts a pod that shares the node's process namespace, and waits until it runs.
func (c *Cluster) kill(ctx context.Context, node, often string, ids ...string) (killer *corev1.Pod, err error) {
	privileged := true
	killer = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kill-", Namespace: metav1.NamespaceSystem},
		Spec: corev1.PodSpec{
			NodeName: node, HostPID: true, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "kill", Image: SDKPythonImage, ImagePullPolicy: corev1.PullNever,
				Command:         append([]string{"/usr/bin/python3", "-c", killProgram, often}, ids...),
				SecurityContext: &corev1.SecurityContext{Privileged: &privileged, RunAsUser: new(int64)},
			}},
		},
	}
	if killer, err = c.CoreV1().Pods(killer.Namespace).Create(ctx, killer, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("kill: %w", err)
	}
	return killer, c.WaitPhase(ctx, killer, corev1.PodRunning, corev1.PodSucceeded)
}

// WaitPhase waits until the pod is in any of the phases. It retries after each error,
// because the killed pod can be the API server.
func (c *Cluster) WaitPhase(ctx context.Context, pod *corev1.Pod, phases ...corev1.PodPhase) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return process.Poll(ctx, fmt.Sprintf("pod %s/%s to be in any phase of %v", pod.Namespace, pod.Name, phases), func(ctx context.Context) error {
		got, err := c.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && !slices.Contains(phases, got.Status.Phase) {
			err = fmt.Errorf("got phase %s", got.Status.Phase)
		}
		return err
	})
}

// Port returns the number of a named port of a replica.
func Port(pod *corev1.Pod, name string) int {
	for _, p := range pod.Spec.Containers[0].Ports {
		if p.Name == name {
			return int(p.ContainerPort)
		}
	}
	return 0
}
