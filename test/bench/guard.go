// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	// guardLimit is the target: how many milliseconds the guard may add to the
	// median creation of a pod in the namespace withGuard.
	guardLimit = 1.5

	guardDocsFile = "docs/concepts/guard.md"
)

// The namespaces.
const (
	withoutGuard   = "without-guard"
	withGuard      = "with-guard"
	withGuardFew   = "with-guard-of-few"
	withGuardMany  = "with-guard-of-many"
	guardUnchecked = "unregistered" // has no webhook, so pods are not injected and the guard denies them
)

// guardSize is the number of ServiceAccounts in a namespace, and how many of
// them are labelled.
type guardSize struct{ accounts, labelled int }

func (s guardSize) String() string { return fmt.Sprintf("%d of %d", s.labelled, s.accounts) }

var guardSizes = map[string]guardSize{
	withoutGuard: {2000, 5}, withGuard: {2000, 5}, withGuardFew: {20, 5}, withGuardMany: {2000, 50},
}

// guardPair is a pod creation without and with the guard.
type guardPair struct{ Without, With creation }

type guardResult struct {
	Stamp stamp
	Pods  int // created per way
	Pairs []guardPair
}

// guard measures what the guard adds to the creation of a pod. The ways take
// turns, one pod at a time, on one API server. Each namespace is measured
// separately, because the API server's garbage collector works for all of them.
func (b *bench) guard(ctx context.Context) (*guardResult, error) {
	c, err := b.prepareGuard(ctx)
	if err != nil {
		return nil, err
	}
	result := &guardResult{Stamp: b.stamp(c), Pods: either(b, 1500, 300)}
	for _, namespace := range []string{withGuard, withGuardFew, withGuardMany} {
		var ways []creation
		for _, account := range []string{unannotated, threeClouds} {
			name := map[string]string{unannotated: "ServiceAccount without identity", threeClouds: "three clouds, injected"}[account]
			ways = append(ways, creation{Name: name, Namespace: withoutGuard, Account: account}, creation{Name: name, Namespace: namespace, Account: account})
		}
		times, err := b.takeTurns(ctx, c, ways, result.Pods)
		if err != nil {
			return nil, err
		}
		for i := range ways {
			ways[i].Median, ways[i].P99 = median(times[i]), quantile(times[i], 0.99)
		}
		for i := 0; i < len(ways); i += 2 {
			ways[i+1].Added = ways[i+1].Median - ways[i].Median
			result.Pairs = append(result.Pairs, guardPair{ways[i], ways[i+1]})
		}
	}
	return result, nil
}

// prepareGuard registers Lanyard for all namespaces and installs the guard.
func (b *bench) prepareGuard(ctx context.Context) (*cluster, error) {
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.createNamespace(ctx, guardUnchecked); err != nil {
		return nil, err
	}
	b.printf("creating ServiceAccounts")
	for namespace, size := range guardSizes {
		if err := c.createGuarded(ctx, namespace, size); err != nil {
			return nil, err
		}
	}
	lanyard, _, _, err := b.startLanyard(ctx, c.kubeconfig)
	if err != nil {
		return nil, err
	}
	injected := func(pod *corev1.Pod) bool { return pod.Annotations["lanyard.dev/injected"] != "" }
	for namespace := range guardSizes {
		if err := c.register(ctx, lanyard.url+podPath, lanyard.ca, namespace, injected); err != nil {
			return nil, err
		}
	}
	if err := webhook.Guard(ctx, c.Config(), deployDir); err != nil {
		return nil, err
	}
	return c, c.waitForGuard(ctx, guardUnchecked)
}

// waitForGuard waits until the guard denies pods that were not injected, in a
// namespace without a webhook.
func (c *cluster) waitForGuard(ctx context.Context, namespace string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := c.dryRun(ctx, namespace, newPod(threeClouds, 1))
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait for the guard: %w", err)
	}
	return nil
}

// createGuarded creates a namespace of the given size. withoutGuard opts out of
// the guard with a label; the webhook is registered by the namespace's name.
func (c *cluster) createGuarded(ctx context.Context, namespace string, size guardSize) error {
	if err := c.createNamespace(ctx, namespace); err != nil { // with three ServiceAccounts, two of them labelled, and "default"
		return err
	}
	for i := range size.accounts - 4 {
		var annotations map[string]string
		if i < size.labelled-2 {
			annotations = identity(i + 1)
		}
		if _, err := c.CoreV1().ServiceAccounts(namespace).Create(ctx, newAccount(fmt.Sprintf("other-%d", i), annotations), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a ServiceAccount: %w", err)
		}
	}
	if namespace != withoutGuard {
		return nil
	}
	object, err := c.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("opt a namespace out: %w", err)
	}
	object.Labels["lanyard.dev/inject"] = "disabled"
	if _, err := c.CoreV1().Namespaces().Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("opt a namespace out: %w", err)
	}
	return nil
}

func (r *guardResult) checks() []check {
	var checks []check
	for _, pair := range r.Pairs {
		if pair.With.Namespace != withGuard {
			continue
		}
		checks = append(checks, check{
			what: fmt.Sprintf("median pod creation, %s, %v ServiceAccounts labelled: added by the guard", pair.With.Name, guardSizes[withGuard]),
			got:  pair.With.Added, limit: guardLimit, format: "%.2f ms",
			detail: fmt.Sprintf("%.2f ms with, %.2f ms without the guard", pair.With.Median, pair.Without.Median),
		})
	}
	return checks
}

// cells returns the row for the printed table and for the documentation.
func (p *guardPair) cells() []string {
	return []string{
		p.With.Name, guardSizes[p.With.Namespace].String(),
		fmt.Sprintf("%.2f", p.Without.Median), fmt.Sprintf("%.2f", p.With.Median), fmt.Sprintf("%.2f", p.With.Added),
	}
}

func (r *guardResult) print(b *bench) {
	b.table("\nDry-run pod creation\tlabelled\tmedian without ms\tmedian with ms\tadded ms", func(w io.Writer) {
		for _, pair := range r.Pairs {
			_, _ = fmt.Fprintln(w, strings.Join(pair.cells(), "\t"))
		}
	})
}

func (r *guardResult) table() string {
	m := newTable("Pod", "labelled ServiceAccounts", "median without the guard, ms", "median with the guard, ms", "added, ms")
	for _, pair := range r.Pairs {
		m.row(pair.cells()...)
	}
	m.WriteString("\n" + r.Stamp.sentence(fmt.Sprintf("%d pods of each kind", r.Pods)))
	return m.String()
}

// updateDocs updates the table in the guard's documentation.
func (r *guardResult) updateDocs() error {
	if r == nil {
		return errors.New("-update-docs needs the results of all parts; run make bench first")
	}
	return replaceInFile(guardDocsFile, "cost", r.table())
}
