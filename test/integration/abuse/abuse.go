// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package abuse attacks a webhook from a pod with network
// access and no rights, or through the API server with the rights of an editor of
// one namespace. Every load is bounded in size, and ends with its context.
//
// The tests check that nobody in the cluster can take the webhook down. They run the
// shipped program, under the memory limit of the chart, with a real kube-apiserver, and
// create pods during each attack. They are built without the race detector, which takes
// memory and time of its own.
package abuse

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Target is the webhook that is abused.
type Target struct {
	// Reviews is the host:port that serves AdmissionReviews over HTTPS. Metrics and
	// Health serve plain HTTP.
	Reviews, Metrics, Health string
	// From is the IP address that connections come from. If empty, the system chooses it.
	From string
	// Namespace contains ServiceAccount, which has the annotations of LongestIdentity.
	Namespace, ServiceAccount string
	// Client is for the loads that are sent through the API server.
	Client kubernetes.Interface
}

// Load is one kind of abuse. Run returns when everything is sent, or when ctx ends.
type Load struct {
	// Name describes the attack.
	Name string
	// Run sends it and counts its outcome in the tally.
	Run func(ctx context.Context, target *Target, tally *Tally)
}

// Tally counts the outcomes of connections and requests. The zero value is ready
// to use. Its methods are safe for concurrent use.
type Tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (t *Tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[what]++
}

// String lists the counts.
func (t *Tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(t.counts)) {
		parts = append(parts, fmt.Sprintf("%d × %s", t.counts[what], what))
	}
	return strings.Join(parts, ", ")
}

func responses(status int) string { return fmt.Sprintf("responses %d", status) }

// Together runs the loads at the same time.
func Together(name string, loads ...Load) Load {
	return Load{name, func(ctx context.Context, target *Target, tally *Tally) {
		var running sync.WaitGroup
		for _, load := range loads {
			running.Go(func() { load.Run(ctx, target, tally) })
		}
		running.Wait()
	}}
}

// Repeat runs the loads one after the other, again and again until ctx ends, with
// a pause after each.
func Repeat(name string, pause time.Duration, loads ...Load) Load {
	return Load{name, func(ctx context.Context, target *Target, tally *Tally) {
		for i := 0; ctx.Err() == nil; i++ {
			loads[i%len(loads)].Run(ctx, target, tally)
			sleep(ctx, pause)
		}
	}}
}

// FromTheNetwork is a mixture of all loads that a pod can send without any rights,
// until ctx ends. Each is small enough that two cores still create pods.
func FromTheNetwork() Load {
	return Together("from the network",
		HeaderFlood(4), AbsentBodies(150), DeclaredBodies(10), UnreadAnswers(16, 36, 200, 900),
		IdleConnections(40), SlowDrip(60), SlowLargeBodies(8),
		Repeat("requests", time.Second,
			ManyContainers(3), ForgedNames(256), OversizedObjects(1), LongTexts(1), EphemeralContainers(1),
			RandomServiceAccounts(500), BadRequests(200), Mistakes(500)),
	)
}

// ThroughTheAPIServer is the same for an editor of the target's namespace.
func ThroughTheAPIServer() Load {
	return Repeat("through the API server", time.Second, ManyContainersInDryRun(1), LongNamesInDryRun(2), LongTextsInDryRun(2))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
