// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command abuse attacks a replica of the webhook as a pod without any rights
// can. It runs in a pod, because the machine that runs the suites may have no route
// to the replicas. It prints the outcomes of its connections and requests.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/test/integration/abuse"
)

func main() {
	var target abuse.Target
	flag.StringVar(&target.Reviews, "reviews", "", "`host:port` that serves AdmissionReviews")
	flag.StringVar(&target.Metrics, "metrics", "", "`host:port` of the metrics")
	flag.StringVar(&target.Health, "health", "", "`host:port` of the probes")
	flag.StringVar(&target.Namespace, "namespace", "", "`name` of a namespace")
	flag.StringVar(&target.ServiceAccount, "service-account", "", "`name` of a ServiceAccount in the namespace")
	duration := flag.Duration("for", time.Minute, "how long to send, and again until a review is answered")
	flag.Parse()
	if target.Reviews == "" || target.Metrics == "" || target.Health == "" {
		fmt.Fprintln(os.Stderr, "abuse: want --reviews, --metrics and --health")
		os.Exit(1)
	}
	var tally abuse.Tally
	attack(&target, &tally, *duration)
	// On a busy machine, no review may be answered in that time.
	for i := 0; i < maxRounds && !strings.Contains(tally.String(), "responses 200"); i++ {
		attack(&target, &tally, *duration)
	}
	fmt.Println(tally.String())
}

// maxRounds is how often the program sends again without an answer to any review.
const maxRounds = 10

func attack(target *abuse.Target, tally *abuse.Tally, duration time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	defer cancel()
	abuse.FromTheNetwork().Run(ctx, target, tally)
}
