// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

const controllerManager = "kube-controller-manager"

// limits are the flags for the client of kube-controller-manager.
type limits struct {
	name, qps, burst string
	rounds           int
}

// burst measures how long a real kube-controller-manager takes to create all pods of a
// ReplicaSet, without and with Lanyard.
func (b *bench) burst(ctx context.Context) (*outcome, error) {
	// It builds the program, or returns at once if the program exists.
	build := exec.CommandContext(ctx, "hack/controlplane.sh", controllerManager)
	build.Stdout, build.Stderr = b.out, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build %s: %w", controllerManager, err)
	}
	all := []limits{
		{"20 requests per second, the default", "20", "30", either(b, 1, 0)},
		{"no limit", "10000", "10000", 3},
	}
	c, err := b.prepareBurst(ctx, all)
	if err != nil {
		return nil, err
	}
	pods := either(b, int32(1000), 200)
	result := b.outcome(c, "one ReplicaSet of %d pods for three clouds", pods)
	t := result.table("burst", "Client of "+controllerManager, "without, s", "with Lanyard, s")
	p := plot{Name: "burst", Title: fmt.Sprintf("Seconds until all %d pods of a ReplicaSet exist", pods)}
	for i, limits := range all {
		if limits.rounds == 0 {
			continue
		}
		seconds, err := b.bursts(ctx, c, i, limits, pods)
		if err != nil {
			return nil, err
		}
		without, with := median(seconds[withoutLanyard]), median(seconds[withLanyard])
		t.add(limits.name, fmt.Sprintf("%.1f", without), fmt.Sprintf("%.1f", with))
		p.Groups = append(p.Groups, group{limits.name, []bar{{"without", without}, {"with Lanyard", with}}})
	}
	result.Plots = []plot{p}
	return result, nil
}

// burstNamespace is the namespace of one ReplicaSet.
func burstNamespace(kind string, i, round int) string { return fmt.Sprintf("%s-%d-%d", kind, i, round) }

// prepareBurst makes a namespace for each burst, and installs Lanyard in half of them.
func (b *bench) prepareBurst(ctx context.Context, all []limits) (*cluster, error) {
	c, lanyard, err := b.startBoth(ctx)
	if err != nil {
		return nil, err
	}
	var with []string
	for i, limits := range all {
		for round := range limits.rounds {
			for _, kind := range []string{withoutLanyard, withLanyard} {
				if err := c.createNamespace(ctx, burstNamespace(kind, i, round)); err != nil {
					return nil, err
				}
			}
			with = append(with, burstNamespace(withLanyard, i, round))
		}
	}
	return c, c.installWebhook(ctx, lanyard, with...)
}

// bursts runs kube-controller-manager with the limits, and returns the seconds of each
// burst, without and with Lanyard in turns.
func (b *bench) bursts(ctx context.Context, c *cluster, i int, limits limits, pods int32) (map[string][]float64, error) {
	dir, err := b.subdir(controllerManager)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := c.Kubeconfig(kubeconfig); err != nil {
		return nil, err
	}
	// No context: it is stopped below.
	running, err := process.Start(exec.Command("bin/controlplane/"+controllerManager, //nolint:noctx // see above
		"--kubeconfig="+kubeconfig, "--controllers=replicaset-controller", "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps="+limits.qps, "--kube-api-burst="+limits.burst), filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = running.Stop() }() // it ends with an error after a signal
	seconds := map[string][]float64{}
	for round := range limits.rounds {
		for _, kind := range []string{withoutLanyard, withLanyard} {
			took, err := c.burst(ctx, burstNamespace(kind, i, round), pods)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w%s", limits.name, kind, err, process.Tail(running.LogFile))
			}
			b.printf("%s, %s: %.1f s", limits.name, kind, took)
			seconds[kind] = append(seconds[kind], took)
		}
	}
	return seconds, nil
}

// burst scales a new ReplicaSet to the number of pods, and returns the seconds until they
// exist.
func (c *cluster) burst(ctx context.Context, namespace string, pods int32) (float64, error) {
	pod, sets := newPod(threeClouds, 1), c.AppsV1().ReplicaSets(namespace)
	pod.OwnerReferences, pod.GenerateName = nil, ""
	set, err := sets.Create(ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if err := process.Until(ctx, controllerManager, 3*time.Minute, func(ctx context.Context) (bool, error) {
		set, err = sets.Get(ctx, "app", metav1.GetOptions{})
		return err == nil && set.Status.ObservedGeneration > 0, err
	}); err != nil {
		return 0, err
	}
	start := time.Now()
	set.Spec.Replicas = &pods
	if _, err := sets.Update(ctx, set, metav1.UpdateOptions{}); err != nil {
		return 0, err
	}
	err = process.Until(ctx, "all pods", 3*time.Minute, func(ctx context.Context) (bool, error) {
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && list.RemainingItemCount != nil && *list.RemainingItemCount == int64(pods)-1, err
	})
	return time.Since(start).Seconds(), err
}
