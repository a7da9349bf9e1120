// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// The cases of the load test. Each runs for each number of containers.
const (
	caseMinimal     = "floor, minimal"
	caseUnannotated = "Lanyard, unannotated ServiceAccount"
	caseAWSFloor    = "floor, same length as AWS"
	caseAWS         = "Lanyard, AWS"
	caseThreeFloor  = "floor, same length as three clouds"
	caseThree       = "Lanyard, three clouds"

	// targetConnections is the number of connections that the targets apply to.
	targetConnections = 8
)

var (
	loadContainers  = []int{2, 20}
	loadConnections = []int{1, targetConnections, 64}
	loadAccounts    = []string{unannotated, awsAlone, threeClouds}
	loadPairs       = map[string]pair{
		unannotated: {caseUnannotated, caseMinimal},
		awsAlone:    {caseAWS, caseAWSFloor},
		threeClouds: {caseThree, caseThreeFloor},
	}
)

// pair is a Lanyard case and the floor that it is compared with.
type pair struct{ lanyard, floor string }

// loadCase is the request of one trial.
type loadCase struct {
	name       string
	containers int
	server     *server
	path       string
	review     []byte
}

// load measures CPU, latency and throughput of requests over HTTPS.
func (b *bench) load(ctx context.Context) (*loadResult, error) {
	cases, result, err := b.prepareLoad(ctx)
	if err != nil {
		return nil, err
	}
	trials := map[loadKey][]trial{}
	// Many short rounds: the load of other processes changes within seconds,
	// and both trials of a ratio should see the same load.
	rounds := either(b, 36, 6)
	for round := range rounds {
		for _, connections := range loadConnections {
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
		b.printf("load: round %d of %d: %s", round+1, rounds, roundLine(trials))
	}
	result.summarize(trials)
	return result, nil
}

// roundLine formats the last round's results for the targets.
func roundLine(trials map[loadKey][]trial) string {
	var line bytes.Buffer
	for _, containers := range loadContainers {
		for _, account := range loadAccounts {
			p := loadPairs[account]
			lanyard := trials[loadKey{p.lanyard, containers, targetConnections}]
			floor := trials[loadKey{p.floor, containers, targetConnections}]
			last := len(lanyard) - 1
			fmt.Fprintf(&line, " %.0f/%.0f", lanyard[last].CPU, floor[last].CPU)
		}
	}
	return "µs of CPU" + line.String()
}

// prepareLoad starts the servers and captures requests of the real API server.
func (b *bench) prepareLoad(ctx context.Context) ([]loadCase, *loadResult, error) {
	const namespace = "team"
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := c.createNamespace(ctx, namespace); err != nil {
		return nil, nil, err
	}
	reviews, err := capture(ctx, c, namespace, loadAccounts, loadContainers)
	if err != nil {
		return nil, nil, err
	}
	lanyard, _, _, err := b.startLanyard(ctx, c.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	result := &loadResult{Stamp: b.stamp(c), Protocol: b.protocol}
	if result.Responses, err = askAll(ctx, lanyard, reviews); err != nil {
		return nil, nil, err
	}
	var lengths []int
	for _, response := range result.Responses {
		lengths = append(lengths, response.Sent)
	}
	slices.Sort(lengths)
	floor, err := b.startFloor(nil, slices.Compact(lengths)...)
	if err != nil {
		return nil, nil, err
	}
	var cases []loadCase
	for _, response := range result.Responses {
		review := reviews[response.Account][response.Containers]
		p := loadPairs[response.Account]
		path := fmt.Sprintf("/constant/%d", response.Sent)
		if response.Patch == 0 {
			path = "/minimal"
		}
		cases = append(cases,
			loadCase{p.floor, response.Containers, floor, path, review},
			loadCase{p.lanyard, response.Containers, lanyard, podPath, review})
	}
	return cases, result, nil
}

// askAll sends each request to Lanyard once.
func askAll(ctx context.Context, lanyard *server, reviews map[string]map[int][]byte) ([]responseSize, error) {
	var responses []responseSize
	for _, containers := range loadContainers {
		for _, account := range loadAccounts {
			response, _, err := ask(ctx, lanyard, reviews[account][containers])
			if err != nil {
				return nil, err
			}
			if injected := response.Patch > 0; injected != (account != unannotated) {
				return nil, fmt.Errorf("ServiceAccount %s, %d containers: got an unexpected patch of %d bytes", account, containers, response.Patch)
			}
			response.Account, response.Containers = account, containers
			responses = append(responses, *response)
		}
	}
	return responses, nil
}

// podPath is the path of Lanyard's webhook for pods.
const podPath = "/mutate-v1-pod"

// ask sends a request once and returns the patch and the sizes.
func ask(ctx context.Context, s *server, review []byte) (size *responseSize, patch []byte, err error) {
	client := s.client("h1")
	defer client.CloseIdleConnections()
	body, err := post(ctx, client, s.url+podPath, review)
	if err != nil {
		return nil, nil, err
	}
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &decoded); err != nil {
		return nil, nil, fmt.Errorf("decode the response: %w", err)
	}
	if decoded.Response == nil || !decoded.Response.Allowed {
		return nil, nil, fmt.Errorf("got the response %.1000s, want an allowed request", body)
	}
	return &responseSize{Review: len(review), Sent: len(body), Patch: len(decoded.Response.Patch)}, decoded.Response.Patch, nil
}

// requests returns the number of requests in a trial. Trials take about the
// same time for all cases.
func (b *bench) requests(c *loadCase) int {
	if c.containers > 2 {
		return either(b, 700, 250)
	}
	return either(b, 1200, 500)
}

// trial sends a fixed number of requests over the given number of connections.
// Each connection has one request in flight.
func (b *bench) trial(ctx context.Context, c *loadCase, connections int) (trial, error) {
	callers := newCallers(c, connections, b.protocol)
	defer callers.close()
	if err := callers.learn(ctx); err != nil {
		return trial{}, err
	}
	// Warm up connections, buffers and the heap.
	if _, err := callers.run(ctx, max(connections*4, 100)); err != nil {
		return trial{}, err
	}
	before, err := cpuTime(c.server.pid)
	if err != nil {
		return trial{}, err
	}
	start := time.Now()
	n := b.requests(c)
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
