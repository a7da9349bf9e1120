// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

const (
	// podPath is the path of Lanyard's webhook for pods.
	podPath = "/mutate-v1-pod"
	// targetConnections is the number of connections that the targets apply to.
	targetConnections = 8
)

// pair is the requests of one ServiceAccount to Lanyard, and the same requests to
// the floor. limit is the target: the CPU time relative to the floor.
type pair struct {
	account, lanyard, floor string
	limit                   float64
}

// The dimensions of the load test.
func loadPairs() []pair {
	return []pair{
		{unannotated, "Lanyard, unannotated ServiceAccount", "floor, minimal", 1.9},
		{threeClouds, "Lanyard, three clouds", "floor, same length as three clouds", 2.2},
	}
}

func loadContainers() []int  { return []int{2, 20} }
func loadConnections() []int { return []int{1, targetConnections, 64} }

// loadCase is the request of one trial.
type loadCase struct {
	name       string
	containers int
	server     *server
	path       string
	review     []byte
}

// loadKey identifies the trials of a case.
type loadKey struct {
	name        string
	containers  int
	connections int
}

// trial is the result of a fixed number of requests: the server's CPU time per
// request and the latencies in microseconds, and the requests per second.
type trial struct{ CPU, P50, P99, Throughput float64 }

// load measures CPU, latency and throughput of requests over HTTPS.
func (b *bench) load(ctx context.Context) (*outcome, error) {
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	cases, responses, err := b.prepareLoad(ctx, c)
	if err != nil {
		return nil, err
	}
	trials := map[loadKey][]trial{}
	// Many short rounds: the load of other processes changes within seconds,
	// and both trials of a ratio should see the same load.
	rounds := either(b, 36, 6)
	for round := range rounds {
		for _, connections := range loadConnections() {
			if connections != targetConnections && round%4 != 0 {
				continue // no target depends on these
			}
			for i := range cases {
				// Each round begins with another case, so that a case does not
				// always follow the same one.
				c := &cases[(i+round)%len(cases)]
				t, err := b.trial(ctx, c, connections)
				if err != nil {
					return nil, fmt.Errorf("%s, %d containers: %w", c.name, c.containers, err)
				}
				key := loadKey{c.name, c.containers, connections}
				trials[key] = append(trials[key], t)
			}
		}
		b.printf("load: round %d of %d", round+1, rounds)
	}
	stamp := b.stamp(c)
	protocol := map[string]string{"h1": "HTTP/1.1", "h2": "HTTP/2"}[b.protocol]
	machine := table{File: docsFile, Section: "machine", Note: stamp.sentence("load over " + protocol)}
	return &outcome{Stamp: stamp, Tables: []table{machine, *responses, loadTable(trials)}, Checks: loadChecks(trials)}, nil
}

// loadTable returns the medians of the trials.
func loadTable(trials map[loadKey][]trial) table {
	t := newTable(docsFile, "load", "", "containers", "connections", "CPU per request, µs", "p50, µs", "p99, µs", "requests per second")
	for _, containers := range loadContainers() {
		for _, connections := range loadConnections() {
			for _, p := range loadPairs() {
				for _, name := range []string{p.floor, p.lanyard} {
					cells := []any{name, fmt.Sprintf("%d+1", containers), connections}
					t.add(append(cells, medians(trials[loadKey{name, containers, connections}])...)...)
				}
			}
		}
	}
	return *t
}

// medians returns the median of each figure.
func medians(trials []trial) []any {
	var cells []any
	for _, get := range []func(trial) float64{
		func(t trial) float64 { return t.CPU }, func(t trial) float64 { return t.P50 },
		func(t trial) float64 { return t.P99 }, func(t trial) float64 { return t.Throughput },
	} {
		var values []float64
		for _, t := range trials {
			values = append(values, get(t))
		}
		cells = append(cells, fmt.Sprintf("%.0f", median(values)))
	}
	return cells
}

// loadChecks compares Lanyard's CPU time with the floor's in the same round.
func loadChecks(trials map[loadKey][]trial) []check {
	var checks []check
	for _, p := range loadPairs() {
		for _, containers := range loadContainers() {
			floor := trials[loadKey{p.floor, containers, targetConnections}]
			var ratios []float64
			for round, lanyard := range trials[loadKey{p.lanyard, containers, targetConnections}] {
				ratios = append(ratios, lanyard.CPU/floor[round].CPU)
			}
			checks = append(checks, check{
				What: fmt.Sprintf("CPU per request, %s, %d containers: relative to the %s", p.lanyard, containers, p.floor),
				Got:  median(ratios), Limit: p.limit, Format: "%.2f×",
				Detail: fmt.Sprintf("%.2f to %.2f", slices.Min(ratios), slices.Max(ratios)),
			})
		}
	}
	return checks
}

// prepareLoad starts the servers, captures requests of the real API server and
// sends each to Lanyard once.
func (b *bench) prepareLoad(ctx context.Context, c *cluster) ([]loadCase, *table, error) {
	const namespace = "team"
	if err := c.createNamespace(ctx, namespace); err != nil {
		return nil, nil, err
	}
	reviews, err := capture(ctx, c, namespace, []string{unannotated, threeClouds}, loadContainers())
	if err != nil {
		return nil, nil, err
	}
	lanyard, _, _, err := b.startLanyard(ctx, c.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	responses := newTable(docsFile, "answers", "Request", "containers", "request, bytes", "response, bytes", "patch before base64, bytes")
	var cases []loadCase
	var lengths []int
	for _, containers := range loadContainers() {
		for _, p := range loadPairs() {
			review := reviews[p.account][containers]
			length, patch, err := ask(ctx, lanyard, review)
			if err != nil {
				return nil, nil, err
			}
			if injected := len(patch) > 0; injected != (p.account != unannotated) {
				return nil, nil, fmt.Errorf("ServiceAccount %s, %d containers: got an unexpected patch of %d bytes", p.account, containers, len(patch))
			}
			responses.add(p.lanyard, fmt.Sprintf("%d+1", containers), len(review), length, len(patch))
			path := fmt.Sprintf("/constant/%d", length)
			if len(patch) == 0 {
				path = "/minimal"
			} else {
				lengths = append(lengths, length)
			}
			cases = append(cases, loadCase{p.floor, containers, nil, path, review}, loadCase{p.lanyard, containers, lanyard, podPath, review})
		}
	}
	floor, err := b.startFloor(nil, lengths...)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i < len(cases); i += 2 {
		cases[i].server = floor
	}
	return cases, responses, nil
}

// ask sends a request once and returns the length of the response, and its patch.
func ask(ctx context.Context, s *server, review []byte) (length int, patch []byte, err error) {
	client := s.client("h1")
	defer client.CloseIdleConnections()
	body, err := post(ctx, client, s.url+podPath, review)
	if err != nil {
		return 0, nil, err
	}
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &decoded); err != nil {
		return 0, nil, fmt.Errorf("decode the response: %w", err)
	}
	if decoded.Response == nil || !decoded.Response.Allowed {
		return 0, nil, fmt.Errorf("got the response %.1000s, want an allowed request", body)
	}
	return len(body), decoded.Response.Patch, nil
}

// trial sends a fixed number of requests over the given number of connections.
// Each connection has one request in flight.
func (b *bench) trial(ctx context.Context, c *loadCase, connections int) (trial, error) {
	callers := newCallers(c, connections, b.protocol)
	defer callers.close()
	// Warm up connections, buffers and the heap.
	if _, err := callers.run(ctx, max(connections*4, 100)); err != nil {
		return trial{}, err
	}
	before, err := cpuTime(c.server.pid)
	if err != nil {
		return trial{}, err
	}
	start := time.Now()
	// Trials take about the same time for all cases.
	n := either(b, 1200, 500)
	if c.containers > 2 {
		n = either(b, 700, 250)
	}
	latencies, err := callers.run(ctx, n)
	if err != nil {
		return trial{}, err
	}
	elapsed := time.Since(start)
	after, err := cpuTime(c.server.pid)
	if err != nil {
		return trial{}, err
	}
	return trial{
		CPU:        microseconds(after-before) / float64(n),
		P50:        microseconds(quantile(latencies, 0.5)),
		P99:        microseconds(quantile(latencies, 0.99)),
		Throughput: float64(n) / elapsed.Seconds(),
	}, nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
