// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The namespaces. Each has its own webhook or none.
const (
	withoutWebhook = "without"
	withFloor      = "with-floor"
	withAnnotation = "with-annotating-floor"
	withPatch      = "with-patching-floor"
	withLanyard    = "with-lanyard"
)

// annotationPatch is nearly the shortest possible patch of a pod.
const annotationPatch = `[{"op":"add","path":"/metadata/annotations","value":{"measured":"1"}}]`

// warmUp is the number of turns that are not measured.
const warmUp = 50

// way is one of several actions that are compared.
type way struct {
	name string
	do   func(ctx context.Context, turn int) error
}

// takeTurns does everything the given number of times, in turns, and returns the
// duration of each action in milliseconds.
func (b *bench) takeTurns(ctx context.Context, warmUp, turns int, ways ...way) ([][]float64, error) {
	times := make([][]float64, len(ways))
	last := time.Now()
	for i := range warmUp + turns {
		for j := range ways {
			next := (i + j) % len(ways)
			start := time.Now()
			if err := ways[next].do(ctx, i); err != nil {
				return nil, fmt.Errorf("%s: %w", ways[next].name, err)
			}
			if i >= warmUp {
				times[next] = append(times[next], time.Since(start).Seconds()*1000)
			}
		}
		if time.Since(last) > 5*time.Second {
			b.printf("turn %d of %d", i, warmUp+turns)
			last = time.Now()
		}
	}
	return times, nil
}

// creation is the creation of a pod, as a dry run.
func (c *cluster) creation(name, namespace string, pod *corev1.Pod) way {
	return way{name, func(ctx context.Context, _ int) error {
		_, err := c.dryRun(ctx, namespace, pod)
		return err
	}}
}

// apiserver measures how much a webhook adds to the creation of a pod.
func (b *bench) apiserver(ctx context.Context) (*outcome, error) {
	c, floor, err := b.prepareWebhooks(ctx)
	if err != nil {
		return nil, err
	}
	before, err := cpuTime(floor.pid)
	if err != nil {
		return nil, err
	}
	ways := []way{
		c.creation("no webhook", withoutWebhook, newPod(threeClouds, 1)),
		c.creation("floor, minimal", withFloor, newPod(threeClouds, 1)),
		c.creation("floor, with a patch of one annotation", withAnnotation, newPod(threeClouds, 1)),
		c.creation("floor, with Lanyard's patch for three clouds", withPatch, newPod(threeClouds, 1)),
		c.creation("Lanyard, three clouds", withLanyard, newPod(threeClouds, 1)),
		c.creation("Lanyard, unannotated ServiceAccount", withLanyard, newPod(unannotated, 1)),
	}
	pods := either(b, 1500, 300)
	times, err := b.takeTurns(ctx, warmUp, pods, ways...)
	if err != nil {
		return nil, err
	}
	after, err := cpuTime(floor.pid)
	if err != nil {
		return nil, err
	}
	if used := after - before; used < time.Duration(pods)*10*time.Microsecond {
		return nil, fmt.Errorf("the floor used %v of CPU for %d requests: the API server did not call it", used, pods)
	}
	t := newTable(docsFile, "apiserver", "Webhook", "median, ms", "p99, ms", "added to the median, ms")
	for i, way := range ways {
		t.add(way.name, median(times[i]), quantile(times[i], 0.99), median(times[i])-median(times[0]))
	}
	return &outcome{Stamp: b.stamp(c), Tables: []table{*t}}, nil
}

// prepareWebhooks registers the floor and Lanyard, each for one namespace.
func (b *bench) prepareWebhooks(ctx context.Context) (*cluster, *server, error) {
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, namespace := range []string{withoutWebhook, withFloor, withAnnotation, withPatch, withLanyard, "capture"} {
		if err := c.createNamespace(ctx, namespace); err != nil {
			return nil, nil, err
		}
	}
	lanyard, _, _, err := b.startLanyard(ctx, c.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	reviews, err := capture(ctx, c, "capture", []string{threeClouds}, []int{1})
	if err != nil {
		return nil, nil, err
	}
	_, patch, err := ask(ctx, lanyard, reviews[threeClouds][1])
	if err != nil {
		return nil, nil, err
	}
	floor, err := b.startFloor(patch)
	if err != nil {
		return nil, nil, err
	}
	annotating, err := b.startFloor([]byte(annotationPatch))
	if err != nil {
		return nil, nil, err
	}
	// The API server picks up the configurations in this order. A response of
	// the minimal floor would not show that the floor was called.
	if err := c.register(ctx, floor.url+"/minimal", floor.ca, withFloor, nil); err != nil {
		return nil, nil, err
	}
	annotated := func(pod *corev1.Pod) bool { return pod.Annotations["measured"] != "" }
	if err := c.register(ctx, annotating.url+"/patch", annotating.ca, withAnnotation, annotated); err != nil {
		return nil, nil, err
	}
	if err := c.register(ctx, floor.url+"/patch", floor.ca, withPatch, isInjected); err != nil {
		return nil, nil, err
	}
	return c, floor, c.register(ctx, lanyard.url+podPath, lanyard.ca, withLanyard, isInjected)
}
