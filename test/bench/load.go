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

// The cases of the load, each for each number of containers.
const (
	caseBare        = "floor, bare"
	caseUnannotated = "Lanyard, unannotated account"
	caseAWSFloor    = "floor, answer as long as AWS"
	caseAWS         = "Lanyard, AWS"
	caseThreeFloor  = "floor, answer as long as three clouds"
	caseThree       = "Lanyard, three clouds"

	// targetConnections is how many the targets are about.
	targetConnections = 8
)

var (
	loadContainers  = []int{2, 20}
	loadConnections = []int{1, targetConnections, 64}
	loadAccounts    = []string{unannotated, awsAlone, threeClouds}
	loadPairs       = map[string]pair{
		unannotated: {caseUnannotated, caseBare},
		awsAlone:    {caseAWS, caseAWSFloor},
		threeClouds: {caseThree, caseThreeFloor},
	}
)

// pair is a case of Lanyard and the floor that it is held against.
type pair struct{ lanyard, floor string }

// loadCase is what one trial asks for.
type loadCase struct {
	name       string
	containers int
	server     *server
	path       string
	review     []byte
}

// load measures CPU, latency and throughput of reviews over HTTPS.
func (b *bench) load(ctx context.Context) (*loadResult, error) {
	cases, result, err := b.prepareLoad(ctx)
	if err != nil {
		return nil, err
	}
	trials := map[loadKey][]trial{}
	// Many short rounds: what else the machine is at changes within seconds, and a
	// ratio should be of two trials that saw the same of it.
	rounds := either(b, 36, 6)
	for round := range rounds {
		for _, connections := range loadConnections {
			if connections != targetConnections && round%4 != 0 {
				continue // no target depends on these
			}
			for i := range cases {
				// Each round begins with another case, so that none always
				// follows the same one.
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

// roundLine says how the last round went where the targets are.
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

// prepareLoad starts the servers and has the real API server make the reviews.
func (b *bench) prepareLoad(ctx context.Context) ([]loadCase, *loadResult, error) {
	const namespace = "team"
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := c.createNamespace(ctx, namespace); err != nil {
		return nil, nil, err
	}
	reviews, err := b.capture(ctx, c, namespace, loadAccounts, loadContainers)
	if err != nil {
		return nil, nil, err
	}
	lanyard, _, _, err := b.startLanyard(ctx, c.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	result := &loadResult{Stamp: b.stamp(c), Protocol: b.protocol}
	if result.Answers, err = askAll(ctx, lanyard, reviews); err != nil {
		return nil, nil, err
	}
	var lengths []int
	for _, answer := range result.Answers {
		lengths = append(lengths, answer.Sent)
	}
	slices.Sort(lengths)
	floor, err := b.startFloor(nil, slices.Compact(lengths)...)
	if err != nil {
		return nil, nil, err
	}
	var cases []loadCase
	for _, answer := range result.Answers {
		review := reviews[answer.Account][answer.Containers]
		p := loadPairs[answer.Account]
		path := fmt.Sprintf("/constant/%d", answer.Sent)
		if answer.Patch == 0 {
			path = "/bare"
		}
		cases = append(cases,
			loadCase{p.floor, answer.Containers, floor, path, review},
			loadCase{p.lanyard, answer.Containers, lanyard, podPath, review})
	}
	return cases, result, nil
}

// askAll asks Lanyard each question once.
func askAll(ctx context.Context, lanyard *server, reviews map[string]map[int][]byte) ([]answerSize, error) {
	var answers []answerSize
	for _, containers := range loadContainers {
		for _, account := range loadAccounts {
			answer, _, err := ask(ctx, lanyard, reviews[account][containers])
			if err != nil {
				return nil, err
			}
			if injected := answer.Patch > 0; injected != (account != unannotated) {
				return nil, fmt.Errorf("account %s, %d containers: got a patch of %d bytes", account, containers, answer.Patch)
			}
			answer.Account, answer.Containers = account, containers
			answers = append(answers, *answer)
		}
	}
	return answers, nil
}

// podPath is where Lanyard serves the reviews of pods.
const podPath = "/mutate-v1-pod"

// ask sends a review once, and gives the answer's patch and what it is made of.
func ask(ctx context.Context, s *server, review []byte) (size *answerSize, patch []byte, err error) {
	client := s.client("h1")
	defer client.CloseIdleConnections()
	body, err := post(ctx, client, s.url+podPath, review)
	if err != nil {
		return nil, nil, err
	}
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &decoded); err != nil {
		return nil, nil, fmt.Errorf("answer: %w", err)
	}
	if decoded.Response == nil || !decoded.Response.Allowed {
		return nil, nil, fmt.Errorf("got the answer %.1000s, want one that allows", body)
	}
	return &answerSize{Review: len(review), Sent: len(body), Patch: len(decoded.Response.Patch)}, decoded.Response.Patch, nil
}

// requests is how many reviews make a trial: about the same time for each.
func (b *bench) requests(c *loadCase) int {
	if c.containers > 2 {
		return either(b, 700, 250)
	}
	return either(b, 1200, 500)
}

// trial sends a fixed number of reviews over so many connections, each of which
// has one review at a time under way.
func (b *bench) trial(ctx context.Context, c *loadCase, connections int) (trial, error) {
	callers := newCallers(c, connections, b.protocol)
	defer callers.close()
	if err := callers.learn(ctx); err != nil {
		return trial{}, err
	}
	// Connections, buffers and the heap are as they are in the long run.
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
