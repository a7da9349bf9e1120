// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// alikeCompiled is the result if the ServiceAccount cannot be compiled for the reason for which the
// webhook denies it.
const alikeCompiled = "denied alike, when the identities are compiled"

// testCompiledGoldenCases is testGoldenCases for policies with compiled identities.
func (c *cluster) testCompiledGoldenCases(t *testing.T) {
	all, adopted := cases(t, 500)
	groups, accounts, denied := map[string]string{}, map[string][]policies.Account{}, map[string]error{}
	for _, g := range all {
		if _, found := groups[g.config]; !found {
			groups[g.config] = fmt.Sprintf("k%d", len(groups))
		}
		s := settingsOf(t, g.config)
		c.prepare(t, g, groups[g.config], s)
		account := accountOf(g)
		if _, err := compile(s, account); err != nil && !strings.Contains(err.Error(), "got no ServiceAccount with an identity") {
			denied[g.name] = fmt.Errorf("lanyard: %w", err)
			continue
		}
		accounts[g.config] = append(accounts[g.config], account)
	}
	for _, config := range slices.Sorted(maps.Keys(groups)) {
		c.applyCompiled(t, settingsOf(t, config), groups[config], accounts[config]...)
	}
	for _, group := range groups {
		c.waitInjected(t, "probe-"+group, "probe", annotations.Injected)
	}
	var table strings.Builder
	table.WriteString("| Case | Result | Reason |\n|---|---|---|\n")
	counts := map[string]int{}
	for _, g := range all {
		result, why := c.compare(t, g, denied[g.name], alikeCompiled)
		counts[result]++
		fmt.Fprintf(&table, "| %s | %s | %s |\n", g.name, result, why)
	}
	fmt.Fprintf(&table, "| adopted/* (%d cases) | %s | setting adopt |\n", adopted, notHere)
	for _, result := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%d %s", counts[result], result)
	}
	holdGolden(t, "testdata/compiled.md", table.String())
}

// accountOf returns the ServiceAccount that the pods of a case use.
func accountOf(g *golden) policies.Account {
	account, namespace := annotations.ServiceAccountObject(g.account), annotations.NamespaceObject(g.namespace)
	account.Namespace, account.Name, namespace.Name = g.live(), cmp.Or(account.Name, "app"), g.live()
	return policies.Account{ServiceAccount: account, Namespace: namespace}
}

func compile(s *annotations.Settings, accounts ...policies.Account) (string, error) {
	compiled, err := policies.Compile(s, policies.DefaultName, "", &policies.Source{}, accounts)
	if err != nil {
		return "", err
	}
	return compiled.Text(), nil
}

// account returns a ServiceAccount without a Namespace.
func account(namespace, name string, values map[string]string) policies.Account {
	return policies.Account{ServiceAccount: &annotations.Object{Namespace: namespace, Name: name, Annotations: values}}
}

// installCompiled installs policies with the identities in the namespaces of the group, and waits
// until they inject.
func (c *cluster) installCompiled(t *testing.T, s *annotations.Settings, group string, accounts ...policies.Account) {
	t.Helper()
	c.applyCompiled(t, s, group, accounts...)
	c.waitInjected(t, "probe-"+group, "probe", annotations.Injected)
	c.waitDenied(t, "probe-"+group, "probe")
}

func (c *cluster) applyCompiled(t *testing.T, s *annotations.Settings, group string, accounts ...policies.Account) {
	t.Helper()
	namespace := "probe-" + group
	text, err := compile(s, append(accounts, account(namespace, "probe", map[string]string{annotations.Audience: "probe"}))...)
	must(t, group, err)
	must(t, group, apply(t.Context(), c.client, text, group))
	_, err = c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{configLabel: group}}}, metav1.CreateOptions{})
	must(t, group, err)
	c.createAccount(t, namespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "probe"}})
}
