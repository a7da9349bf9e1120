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

// Indexes of apiserverResult.Creations.
const (
	createdWithout = iota
	createdWithFloor
	createdWithAnnotation
	createdWithPatch
	createdWithLanyard
)

// annotationPatch is nearly the shortest possible patch of a pod.
const annotationPatch = `[{"op":"add","path":"/metadata/annotations","value":{"measured":"1"}}]`

// creation is one way to create a pod. Median and P99 are in milliseconds.
type creation struct {
	Name               string
	Namespace, Account string
	Median, P99        float64
	// Added is the difference from the median without a webhook.
	Added float64
}

type apiserverResult struct {
	Stamp     stamp
	Pods      int // created per way
	Creations []creation
}

// ratio returns what Lanyard adds for three clouds, relative to what another
// way adds.
func (r *apiserverResult) ratio(to int) float64 {
	return r.Creations[createdWithLanyard].Added / r.Creations[to].Added
}

// apiserver measures what a webhook adds to the creation of a pod. The ways
// take turns, one pod at a time, on one API server.
func (b *bench) apiserver(ctx context.Context) (*apiserverResult, error) {
	c, floor, err := b.prepareWebhooks(ctx)
	if err != nil {
		return nil, err
	}
	before, err := cpuTime(floor.pid)
	if err != nil {
		return nil, err
	}
	creations := []creation{
		createdWithout:        {Name: "no webhook", Namespace: withoutWebhook, Account: threeClouds},
		createdWithFloor:      {Name: "floor, minimal", Namespace: withFloor, Account: threeClouds},
		createdWithAnnotation: {Name: "floor, with a patch of one annotation", Namespace: withAnnotation, Account: threeClouds},
		createdWithPatch:      {Name: "floor, with Lanyard's patch for three clouds", Namespace: withPatch, Account: threeClouds},
		createdWithLanyard:    {Name: "Lanyard, three clouds", Namespace: withLanyard, Account: threeClouds},
		{Name: "Lanyard, AWS", Namespace: withLanyard, Account: awsAlone},
		{Name: "Lanyard, unannotated ServiceAccount", Namespace: withLanyard, Account: unannotated},
	}
	result := &apiserverResult{Stamp: b.stamp(c), Pods: either(b, 1500, 300), Creations: creations}
	times, err := b.takeTurns(ctx, c, creations, result.Pods)
	if err != nil {
		return nil, err
	}
	after, err := cpuTime(floor.pid)
	if err != nil {
		return nil, err
	}
	if used := after - before; used < time.Duration(result.Pods)*10*time.Microsecond {
		return nil, fmt.Errorf("the floor used %v of CPU for %d requests: the API server did not call it", used, result.Pods)
	}
	result.summarize(times)
	return result, nil
}

// takeTurns creates the given number of pods in each way and returns the
// duration of each creation in milliseconds.
func (b *bench) takeTurns(ctx context.Context, c *cluster, creations []creation, pods int) ([][]float64, error) {
	const warmUp = 50
	times := make([][]float64, len(creations))
	last := time.Now()
	for i := range warmUp + pods {
		for j := range creations {
			way := (i + j) % len(creations)
			start := time.Now()
			if _, err := c.dryRun(ctx, creations[way].Namespace, newPod(creations[way].Account, 1)); err != nil {
				return nil, fmt.Errorf("%s: %w", creations[way].Name, err)
			}
			if i >= warmUp {
				times[way] = append(times[way], time.Since(start).Seconds()*1000)
			}
		}
		if time.Since(last) > 5*time.Second {
			b.printf("apiserver: %d of %d pods", i, warmUp+pods)
			last = time.Now()
		}
	}
	return times, nil
}

func (r *apiserverResult) summarize(times [][]float64) {
	for i := range r.Creations {
		c := &r.Creations[i]
		c.Median, c.P99 = median(times[i]), quantile(times[i], 0.99)
		c.Added = c.Median - r.Creations[createdWithout].Median
	}
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
	injected := func(pod *corev1.Pod) bool { return pod.Annotations["lanyard.dev/injected"] != "" }
	if err := c.register(ctx, floor.url+"/patch", floor.ca, withPatch, injected); err != nil {
		return nil, nil, err
	}
	return c, floor, c.register(ctx, lanyard.url+podPath, lanyard.ca, withLanyard, injected)
}
