// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// mode is a way to inject. Its namespaces are named by it and by their number of labelled
// ServiceAccounts.
type mode struct {
	name                        string
	webhook, policies, compiled bool
}

func modes() []mode {
	return []mode{
		{name: "nothing"},
		{name: "webhook", webhook: true},
		{name: "policies", policies: true},
		{name: "both", webhook: true, policies: true},
		{name: "compiled", compiled: true},
	}
}

func (m *mode) namespace(labelled int) string { return fmt.Sprintf("%s-%d", m.name, labelled) }

// labelledSizes are the numbers of labelled ServiceAccounts in a namespace.
func labelledSizes() []int { return []int{1, 20, 200, 2000} }

// podKinds are the pods that are created in each namespace.
func podKinds() []struct{ name, account string } {
	return []struct{ name, account string }{{"no identity", unannotated}, {"three clouds", threeClouds}}
}

// measured is the result of one version of kube-apiserver: the median creations in
// milliseconds, by the kind of the pod, the number of labelled ServiceAccounts, and the
// mode.
type measured struct {
	minor   string
	medians [2][4][5]float64
}

// policies measures how much each way to inject adds to the creation of a pod, on each
// version of kube-apiserver.
func (b *bench) policies(ctx context.Context) (*outcome, error) {
	result := &outcome{How: fmt.Sprintf("%d to %d dry-run creations of each kind, taking turns", b.policyTurns(2000), b.policyTurns(1))}
	var versions []string
	var all []measured
	for dir := range strings.SplitSeq(b.controlplanes, ",") {
		before := len(b.ends)
		c, err := b.preparePolicies(ctx, dir)
		if err != nil {
			return nil, err
		}
		result.Stamp = b.stamp(c)
		versions = append(versions, c.Version())
		parsed, err := version.ParseGeneric(c.Version())
		if err != nil {
			return nil, err
		}
		m := measured{minor: fmt.Sprintf("%d.%d", parsed.Major(), parsed.Minor())}
		for size, labelled := range labelledSizes() {
			if err := b.comparePolicies(ctx, c, labelled, size, &m); err != nil {
				return nil, err
			}
		}
		all = append(all, m)
		// The next API server must not share the machine with this one.
		if err := b.end(before); err != nil {
			return nil, err
		}
	}
	result.Stamp.Kubernetes = strings.Join(versions, " and ")
	addPolicyTable(result, all)
	result.Plots = policyPlots(all)
	return result, nil
}

// addPolicyTable adds a table of the added milliseconds, with a row for each kind of pod and
// number of ServiceAccounts.
func addPolicyTable(result *outcome, all []measured) {
	header := []string{"Added, ms", "identities"}
	for _, m := range all {
		for _, mode := range modes()[1:] {
			header = append(header, m.minor+" "+mode.name)
		}
	}
	t := result.table("policies", header...)
	for kind, pod := range podKinds() {
		for size, labelled := range labelledSizes() {
			row := []any{pod.name, labelled}
			for _, m := range all {
				medians := m.medians[kind][size]
				for _, with := range medians[1:] {
					row = append(row, fmt.Sprintf("%+.2f", with-medians[0]))
				}
			}
			t.add(row...)
		}
	}
}

// policyPlots returns a plot for each kind of pod, without the largest namespace, because next to
// its bars, the others would not be visible.
func policyPlots(all []measured) []plot {
	plots := []plot{
		{Name: "plain", Title: "Added to the creation of a pod without an identity, in milliseconds"},
		{Name: "injected", Title: "Added to the creation of a pod for three clouds, in milliseconds"},
	}
	for kind := range plots {
		for _, m := range all {
			for size, labelled := range labelledSizes()[:3] {
				g := group{Name: fmt.Sprintf("Kubernetes %s, ServiceAccounts with an identity: %d", m.minor, labelled)}
				for i, mode := range modes()[1:] {
					medians := m.medians[kind][size]
					g.Bars = append(g.Bars, bar{mode.name, max(medians[i+1]-medians[0], 0)})
				}
				plots[kind].Groups = append(plots[kind].Groups, g)
			}
		}
	}
	return plots
}

// policyTurns returns the number of creations of each kind. The slower namespaces have fewer.
func (b *bench) policyTurns(labelled int) int {
	switch {
	case labelled >= 2000:
		return either(b, 10, 3)
	case labelled >= 200:
		return either(b, 150, 20)
	}
	return either(b, 400, 60)
}

// comparePolicies measures the median creation of each pod in the namespaces with this
// number of labelled ServiceAccounts.
func (b *bench) comparePolicies(ctx context.Context, c *cluster, labelled, size int, m *measured) error {
	b.printf("%s, %d labelled ServiceAccounts", c.Version(), labelled)
	var ways []way
	for _, kind := range podKinds() {
		for _, mode := range modes() {
			ways = append(ways, c.creation(kind.name+", "+mode.name, mode.namespace(labelled), newPod(kind.account, 1)))
		}
	}
	turns := b.policyTurns(labelled)
	times, err := b.takeTurns(ctx, min(warmUp/2, turns/3), turns, ways...)
	if err != nil {
		return err
	}
	for i := range ways {
		m.medians[i/len(modes())][size][i%len(modes())] = median(times[i])
	}
	return nil
}

// preparePolicies starts the API server of dir, and installs each mode in its namespaces.
func (b *bench) preparePolicies(ctx context.Context, dir string) (*cluster, error) {
	c, lanyard, err := b.startBoth(ctx, dir)
	if err != nil {
		return nil, err
	}
	var withWebhook, withPolicies []string
	compiled := map[string]int{}
	for _, mode := range modes() {
		for _, labelled := range labelledSizes() {
			namespace := mode.namespace(labelled)
			if mode.webhook {
				withWebhook = append(withWebhook, namespace)
			}
			if mode.policies {
				withPolicies = append(withPolicies, namespace)
			}
			if mode.compiled {
				compiled[namespace] = labelled
			}
			if err := c.createOthers(ctx, &mode, namespace, labelled); err != nil {
				return nil, err
			}
		}
	}
	if err := c.installWebhook(ctx, lanyard, withWebhook...); err != nil {
		return nil, err
	}
	return c, c.installPolicies(ctx, compiled, withPolicies...)
}

// createOthers creates the namespace with this number of labelled ServiceAccounts.
func (c *cluster) createOthers(ctx context.Context, mode *mode, namespace string, labelled int) error {
	others := labelled - 1 // createNamespace creates one
	if !mode.webhook && !mode.policies {
		others = 0 // nothing reads them
	}
	return c.createAccounts(ctx, namespace, others, others, nil)
}

// guardUnchecked is a namespace without a webhook, so pods are not injected, and the
// guard denies them.
const guardUnchecked = "unregistered"

// installWebhook registers the webhook for the namespaces and installs the guard in them.
func (c *cluster) installWebhook(ctx context.Context, lanyard *server, namespaces ...string) error {
	if err := c.createNamespace(ctx, guardUnchecked); err != nil {
		return err
	}
	if err := c.register(ctx, lanyard.url+podPath, lanyard.ca, isInjected, namespaces...); err != nil {
		return err
	}
	return c.installGuard(ctx, guardUnchecked, namespaces...)
}

// installPolicies installs the policies that inject, in the namespaces. Each namespace of compiled
// gets policies of its own with this number of identities.
func (c *cluster) installPolicies(ctx context.Context, compiled map[string]int, namespaces ...string) error {
	s, err := settings.Load(nil, nil)
	if err != nil {
		return err
	}
	text, err := policies.Generate(s, policies.DefaultName, &policies.Source{})
	if err == nil {
		err = c.installInjecting(ctx, text, namespaces...)
	}
	if err != nil {
		return err
	}
	for namespace, n := range compiled {
		var accounts []policies.Account
		for i := range n {
			name := threeClouds
			if i > 0 {
				name = other(i - 1)
			}
			accounts = append(accounts, policies.Account{ServiceAccount: &annotations.Object{Namespace: namespace, Name: name, Annotations: identity(i)}})
		}
		compiled, err := policies.Compile(s, namespace, "", &policies.Source{}, accounts)
		if err == nil {
			err = c.installInjecting(ctx, compiled.Text(), namespace)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// installInjecting installs the policies of a text, in the namespaces.
func (c *cluster) installInjecting(ctx context.Context, text string, namespaces ...string) error {
	objects, err := webhook.DecodeManifest("policies.yaml", []byte(text))
	if err != nil {
		return err
	}
	if err := c.createIn(ctx, objects, namespaces); err != nil {
		return err
	}
	return c.waitInjected(ctx, "the policies in "+namespaces[0], namespaces[0], isInjected)
}
