// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// feelAccounts is the number of labelled ServiceAccounts in a namespace.
	feelAccounts = 20
	// slowLimit is the target: how many percent of the API server's calls of Lanyard's
	// webhook may take more than 5 ms, the first bucket of its metric.
	slowLimit = 1
	// callSeconds is the name of the metric.
	callSeconds = "apiserver_admission_webhook_admission_duration_seconds"
)

// The namespaces.
const (
	withoutLanyard = "without-lanyard"
	withLanyard    = "with-lanyard"
)

// feel creates pods at a fixed rate, without and with Lanyard, however long a creation
// takes. Every second pod is injected.
func (b *bench) feel(ctx context.Context) (*outcome, error) {
	c, lanyard, err := b.startBoth(ctx)
	if err != nil {
		return nil, err
	}
	for _, namespace := range []string{withoutLanyard, withLanyard} {
		if err := c.createAccounts(ctx, namespace, feelAccounts-1, feelAccounts-1, nil); err != nil {
			return nil, err
		}
	}
	if err := c.installWebhook(ctx, lanyard, withLanyard); err != nil {
		return nil, err
	}
	lasts := either(b, time.Minute, 5*time.Second)
	result := b.outcome(c, "%v each, %d labelled ServiceAccounts", lasts, feelAccounts)
	t := result.table("feel", "Pods per second", "", "p50, ms", "p99, ms", "calls of Lanyard within 5 ms")
	p := plot{Name: "feel", Title: "Creation of a pod, in milliseconds"}
	for _, rate := range []int{20, 100} {
		g := group{Name: fmt.Sprintf("%d pods per second", rate)}
		for _, namespace := range []string{withoutLanyard, withLanyard} {
			b.printf("%d pods per second, %s", rate, namespace)
			times, within, err := b.openLoop(ctx, c, namespace, rate, lasts)
			if err != nil {
				return nil, err
			}
			name := map[string]string{withoutLanyard: "without", withLanyard: "with Lanyard"}[namespace]
			p50, p99 := quantile(times, 0.5), quantile(times, 0.99)
			g.Bars = append(g.Bars, bar{name + ", p50", p50}, bar{name + ", p99", p99})
			if namespace == withoutLanyard {
				t.add(rate, name, p50, p99, "")
				continue
			}
			t.add(rate, name, p50, p99, fmt.Sprintf("%.2f %%", within*100))
			result.Checks = append(result.Checks, check{
				What: fmt.Sprintf("calls above 5 ms, %d pods per second", rate),
				Got:  (1 - within) * 100, Limit: slowLimit, Format: "%.2f %%", Detail: fmt.Sprintf("%d pods", len(times)),
			})
		}
		p.Groups = append(p.Groups, g)
	}
	result.Plots = []plot{p}
	return result, nil
}

// openLoop creates pods at a rate. It returns the time of each in milliseconds, from the
// moment at which it was due, and the share of the webhook's calls within 5 ms.
func (b *bench) openLoop(ctx context.Context, c *cluster, namespace string, rate int, lasts time.Duration) ([]float64, float64, error) {
	fastBefore, callsBefore, err := c.calls(ctx)
	if err != nil {
		return nil, 0, err
	}
	times := make([]float64, rate*int(lasts/time.Second))
	group, inner := errgroup.WithContext(ctx)
	start := time.Now()
	for i := range times {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(rate))
		select {
		case <-inner.Done():
			return nil, 0, group.Wait()
		case <-time.After(time.Until(due)):
		}
		group.Go(func() error {
			account := []string{threeClouds, unannotated}[i%2]
			_, err := c.CoreV1().Pods(namespace).Create(inner, newPod(account, 1), metav1.CreateOptions{})
			times[i] = time.Since(due).Seconds() * 1000
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	fast, calls, err := c.calls(ctx)
	return times, (fast - fastBefore) / max(calls-callsBefore, 1), err
}

// calls returns how often the API server called Lanyard's webhook for pods, and how many
// of these calls took at most 5 ms.
func (c *cluster) calls(ctx context.Context) (fast, all float64, err error) {
	text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	const name = `name="pods.lanyard.dev"`
	return sum(string(text), callSeconds+"_bucket", name, `le="0.005"`), sum(string(text), callSeconds+"_count", name), nil
}
