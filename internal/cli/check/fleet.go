// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Member is a cluster of a fleet: several clusters with the same issuer.
type Member struct {
	Name      string
	Documents *cloud.Documents
	// Identities are the annotations about identities, by the ServiceAccounts' NAMESPACE/NAME.
	Identities map[string]map[string]string
}

const fleetPage = "issuer.md#one-issuer-for-a-fleet"

// Fleet compares clusters with the same issuer. The published documents may be nil.
func Fleet(members []Member, public *cloud.Documents) []finding.Finding {
	found := append(fleetKeys(members, public), sameNames(members)...)
	return orPassed(found, "%d clusters have their keys published, and ServiceAccounts of the same name have the same identities. Each cluster can act as the others", len(members))
}

// fleetKeys compares the keys of the clusters with the published keys.
func fleetKeys(members []Member, public *cloud.Documents) (found []finding.Finding) {
	if public == nil {
		return nil // the finding about the issuer says why
	}
	unknown := public.KeyIDs()
	for _, m := range members {
		wrong, foreign := cloud.Compare(m.Documents, public, "")
		for _, text := range wrong {
			found = append(found, finding.Fail("issuer_differs", "In this cluster, run: lanyard trust issuer --fleet --to PLACE", fleetPage,
				"%s: %s: clouds deny the tokens", m.Name, text))
		}
		unknown = slices.DeleteFunc(unknown, func(id string) bool { return !slices.Contains(foreign, id) })
	}
	for _, id := range unknown {
		found = append(found, finding.Warn("issuer_unknown_key", "If no other cluster signs with it, run: lanyard trust issuer --fleet --remove-key "+cloud.Quote(id)+" --to PLACE", fleetPage,
			"key %s is published, but none of the %d clusters serves it: anyone who holds it can act as any of them", id, len(members)))
	}
	return found
}

// maxSameNames limits the ServiceAccounts that are shown.
const maxSameNames = 20

// sameNames reports ServiceAccounts that have the same name in several clusters, and so are
// the same principal to a cloud, but have different identities.
func sameNames(members []Member) (found []finding.Finding) {
	all := map[string]bool{}
	for _, m := range members {
		for name := range m.Identities {
			all[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if differences := differences(members, name); differences != "" {
			found = append(found, finding.Warn("same_name", "Use the same annotations, or different names: in each cluster, it can use what the others trust.", fleetPage,
				"ServiceAccount %s is one identity for clouds, but the clusters differ: %s", name, differences))
		}
	}
	if n := len(found); n > maxSameNames {
		found = found[:maxSameNames]
		found[maxSameNames-1].Text += "; and " + texts.Count(n-maxSameNames, "more ServiceAccount")
	}
	return found
}

// differences describes the annotations of a ServiceAccount that differ, or returns "" if none does.
func differences(members []Member, name string) string {
	keys := map[string]bool{}
	for _, m := range members {
		for key := range m.Identities[name] {
			keys[key] = true
		}
	}
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		values, each := map[string]bool{}, []string{}
		for _, m := range members {
			if identity, exists := m.Identities[name]; exists {
				value := cmp.Or(identity[key], "not set")
				values[value] = true
				each = append(each, value+" in "+m.Name)
			}
		}
		if len(values) > 1 {
			texts = append(texts, key+" is "+strings.Join(each, ", "))
		}
	}
	return strings.Join(texts, "; ")
}

// fleet compares the cluster with those of --fleet-context.
func (k *checkCommand) fleet(ctx context.Context, own, public *cloud.Documents) {
	var members []Member
	var unread []finding.Finding
	add := func(name string, c *command.CLI, documents *cloud.Documents) {
		m, err := k.member(ctx, name, c, documents)
		if err != nil {
			unread = append(unread, finding.Unreadable(name, err))
			return
		}
		members = append(members, m)
	}
	add("this cluster", k.CLI, own)
	for _, name := range k.fleetContexts {
		add("context "+name, k.InContext(name), nil)
	}
	if len(members) > 1 {
		unread = append(unread, Fleet(members, public)...)
	}
	k.add("fleet", unread...)
}

// member reads a cluster. documents are its own, or nil if they were not read.
func (k *checkCommand) member(ctx context.Context, name string, c *command.CLI, documents *cloud.Documents) (Member, error) {
	m := Member{Name: name, Documents: documents, Identities: map[string]map[string]string{}}
	if documents == nil {
		client, _, err := c.Clients()
		if err != nil {
			return m, err
		}
		if m.Documents, err = cloud.FromCluster(ctx, client.CoreV1().RESTClient()); err != nil {
			return m, err
		}
	}
	return m, c.EachServiceAccount(ctx, metav1.NamespaceAll, func(object *metav1.PartialObjectMetadata) error {
		m.Identities[object.Namespace+"/"+object.Name] = cloud.IdentityOf(k.settings, object.Annotations)
		return nil
	})
}
