// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

const (
	// podPath is the path of Lanyard's webhook for pods.
	podPath = "/mutate-v1-pod"
	// connections is the number of connections to a server.
	connections = 8
)

// pair contains the requests of one ServiceAccount to Lanyard, and the same requests to
// the baseline. limit is the target for the CPU time relative to the baseline.
type pair struct {
	account, lanyard, baseline string
	limit                      float64
}

// The dimensions of the load test.
func loadPairs() []pair {
	return []pair{
		{unannotated, "Lanyard, no identity", "baseline, shortest response", 1.9},
		{threeClouds, "Lanyard, three clouds", "baseline, response of the same length", 2.2},
	}
}

func loadContainers() []int { return []int{2, 20} }

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
	name       string
	containers int
}

// trial is the result of a fixed number of requests: the server's CPU time per
// request in microseconds, and the requests per second.
type trial struct{ CPU, Throughput float64 }

// load measures CPU and throughput of requests over HTTPS.
func (b *bench) load(ctx context.Context) (*outcome, error) {
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	cases, err := b.prepareLoad(ctx, c)
	if err != nil {
		return nil, err
	}
	// Rounds are short and many, because the load of other processes changes within
	// seconds, and both trials of a ratio should see the same load.
	trials, err := b.rounds(ctx, cases, either(b, 36, 6))
	if err != nil {
		return nil, err
	}
	result := b.outcome(c, "HTTP/1.1, 8 connections")
	result.Checks = loadChecks(trials)
	t := result.table("load", "Server", "CPU per request, 2 containers, ms", "20 containers, ms",
		"requests per second, 2 containers", "20 containers")
	for _, p := range loadPairs() {
		for _, name := range []string{p.baseline, p.lanyard} {
			row := make([]any, 5)
			row[0] = name
			for i, containers := range loadContainers() {
				of := trials[loadKey{name, containers}]
				row[1+i] = fmt.Sprintf("%.3f", medianOf(of, func(t trial) float64 { return t.CPU / 1000 }))
				row[3+i] = fmt.Sprintf("%.0f", medianOf(of, func(t trial) float64 { return t.Throughput }))
			}
			t.add(row...)
		}
	}
	return result, nil
}

// rounds runs every case once in each round.
func (b *bench) rounds(ctx context.Context, cases []loadCase, rounds int) (map[loadKey][]trial, error) {
	trials := map[loadKey][]trial{}
	for round := range rounds {
		for i := range cases {
			// Each round begins with another case, so that a case does not
			// always follow the same one.
			c := &cases[(i+round)%len(cases)]
			t, err := b.trial(ctx, c)
			if err != nil {
				return nil, fmt.Errorf("%s, %d containers: %w", c.name, c.containers, err)
			}
			key := loadKey{c.name, c.containers}
			trials[key] = append(trials[key], t)
		}
		b.printf("round %d of %d", round+1, rounds)
	}
	return trials, nil
}

// medianOf returns the median of one figure.
func medianOf(trials []trial, get func(trial) float64) float64 {
	var values []float64
	for _, t := range trials {
		values = append(values, get(t))
	}
	return median(values)
}

// loadChecks compares Lanyard's CPU time with the baseline's in the same round.
func loadChecks(trials map[loadKey][]trial) []check {
	var checks []check
	for _, p := range loadPairs() {
		for _, containers := range loadContainers() {
			baseline := trials[loadKey{p.baseline, containers}]
			var ratios []float64
			for round, lanyard := range trials[loadKey{p.lanyard, containers}] {
				ratios = append(ratios, lanyard.CPU/baseline[round].CPU)
			}
			checks = append(checks, check{
				What: fmt.Sprintf("CPU, %s, %d containers, to the baseline's", p.lanyard, containers),
				Got:  median(ratios), Limit: p.limit, Format: "%.2f×",
				Detail: fmt.Sprintf("%.2f to %.2f", slices.Min(ratios), slices.Max(ratios)),
			})
		}
	}
	return checks
}

// prepareLoad starts the servers, captures requests of the real API server and
// sends each to Lanyard once.
func (b *bench) prepareLoad(ctx context.Context, c *cluster) ([]loadCase, error) {
	const namespace = "team"
	if err := c.createNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	reviews, err := c.capture(ctx, namespace, []string{unannotated, threeClouds})
	if err != nil {
		return nil, err
	}
	lanyard, err := b.startLanyard(ctx, c)
	if err != nil {
		return nil, err
	}
	var cases []loadCase
	var lengths []int
	for _, containers := range loadContainers() {
		for _, p := range loadPairs() {
			review := reviews[p.account][containers]
			length, injected, err := ask(ctx, lanyard, podPath, review)
			if err != nil {
				return nil, err
			}
			if injected != (p.account != unannotated) {
				return nil, fmt.Errorf("ServiceAccount %s, %d containers: injected is %t", p.account, containers, injected)
			}
			path := "/minimal"
			if injected {
				path = fmt.Sprintf("/constant/%d", length)
				lengths = append(lengths, length)
			}
			cases = append(cases, loadCase{p.baseline, containers, nil, path, review}, loadCase{p.lanyard, containers, lanyard, podPath, review})
		}
	}
	baseline, err := b.startBaseline(ctx, lengths...)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(cases); i += 2 {
		cases[i].server = baseline
	}
	return cases, nil
}

// ask sends a request once. It returns the length of the response, and whether the
// response has a patch.
func ask(ctx context.Context, s *server, path string, review []byte) (length int, injected bool, err error) {
	client := s.client()
	defer client.CloseIdleConnections()
	var body bytes.Buffer
	if _, err := post(ctx, client, s.url+path, review, &body); err != nil {
		return 0, false, err
	}
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(body.Bytes(), &decoded); err != nil {
		return 0, false, fmt.Errorf("decode the response: %w", err)
	}
	if decoded.Response == nil || !decoded.Response.Allowed {
		return 0, false, fmt.Errorf("got the response %.1000s, want an allowed request", &body)
	}
	return body.Len(), len(decoded.Response.Patch) > 0, nil
}

// trial sends a fixed number of requests. Each connection has one request in flight.
func (b *bench) trial(ctx context.Context, c *loadCase) (trial, error) {
	var clients []*http.Client
	for range connections {
		client := c.server.client()
		defer client.CloseIdleConnections()
		clients = append(clients, client)
	}
	// Warm up connections, buffers and the heap.
	if err := c.sendAll(ctx, clients, 100); err != nil {
		return trial{}, err
	}
	n := either(b, 900, 400)
	if c.containers > 2 {
		n /= 2 // so that trials take about the same time
	}
	before, err := cpuTime(c.server.pid)
	if err != nil {
		return trial{}, err
	}
	start := time.Now()
	if err := c.sendAll(ctx, clients, n); err != nil {
		return trial{}, err
	}
	elapsed := time.Since(start)
	after, err := cpuTime(c.server.pid)
	if err != nil {
		return trial{}, err
	}
	return trial{CPU: float64((after - before).Microseconds()) / float64(n), Throughput: float64(n) / elapsed.Seconds()}, nil
}
