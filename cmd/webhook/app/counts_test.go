// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestServiceAccountsByState(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	s.ExcludedNamespaces = []string{"kube-system"}
	namespaces := map[types.NamespacedName]metadatacache.Object{
		{Name: "ns"}:       {},
		{Name: "disabled"}: {Label: "disabled"},
		{Name: "false"}:    {Label: "false"},
		{Name: "other"}:    {Label: "true"},
	}
	identity := map[string]string{"lanyard.dev/aws-role-arn": "r"}
	region := map[string]string{"lanyard.dev/aws-region": "r"}
	for name, test := range map[string]struct {
		namespace string
		object    metadatacache.Object
		want      metrics.ServiceAccounts
	}{
		"without annotations it is unannotated":             {"ns", metadatacache.Object{}, metrics.ServiceAccounts{Unannotated: 1}},
		"with only the label it is unannotated":             {"ns", metadatacache.Object{Label: "enabled"}, metrics.ServiceAccounts{Unannotated: 1}},
		"with an identity and the label it is annotated":    {"ns", metadatacache.Object{Annotations: identity, Label: "enabled"}, metrics.ServiceAccounts{Annotated: 1}},
		"a user's label guards it as well":                  {"ns", metadatacache.Object{Annotations: identity, Label: "required"}, metrics.ServiceAccounts{Annotated: 1}},
		"without the label it is unguarded":                 {"ns", metadatacache.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Unguarded: 1}},
		"with another value of the label it is unguarded":   {"ns", metadatacache.Object{Annotations: identity, Label: "true"}, metrics.ServiceAccounts{Annotated: 1, Unguarded: 1}},
		"without an identity it needs no label":             {"ns", metadatacache.Object{Annotations: region}, metrics.ServiceAccounts{Annotated: 1}},
		"with annotations that are too large it is counted": {"ns", metadatacache.Object{TooLarge: 1}, metrics.ServiceAccounts{Annotated: 1}},
		"a namespace can be excluded by its name":           {"kube-system", metadatacache.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Excluded: 1}},
		"a namespace can be disabled by its label":          {"disabled", metadatacache.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Excluded: 1}},
		"the label false means the same":                    {"false", metadatacache.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Excluded: 1}},
		"another value of that label does not exclude":      {"other", metadatacache.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Unguarded: 1}},
		"with the label it is excluded too":                 {"disabled", metadatacache.Object{Annotations: identity, Label: "enabled"}, metrics.ServiceAccounts{Annotated: 1, Excluded: 1}},
		"without an identity it is not excluded":            {"disabled", metadatacache.Object{Annotations: region}, metrics.ServiceAccounts{Annotated: 1}},
		"of an unknown namespace it is unguarded":           {"unknown", metadatacache.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Unguarded: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serviceAccounts := map[types.NamespacedName]metadatacache.Object{{Namespace: test.namespace, Name: "app"}: test.object}
			got := countServiceAccounts(maps.All(serviceAccounts), maps.All(namespaces), s)
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// Counting locks the cache, and any client that reaches the metrics port can scrape.
func TestScrapesDoNotWalkOverAllServiceAccounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cached := map[types.NamespacedName]metadatacache.Object{{Namespace: "ns", Name: "a"}: {}}
		walks := 0
		all := func(yield func(types.NamespacedName, metadatacache.Object) bool) {
			walks++
			maps.All(cached)(yield)
		}
		counts := recentCounts(all, maps.All(map[types.NamespacedName]metadatacache.Object{}))
		s := &annotations.Settings{}
		for range 1000 {
			if got := counts(s).Unannotated; got != 1 {
				t.Fatalf("got %d ServiceAccounts, want 1", got)
			}
		}
		if walks != 1 {
			t.Errorf("got %d walks for 1000 scrapes at once, want 1", walks)
		}
		cached[types.NamespacedName{Namespace: "ns", Name: "b"}] = metadatacache.Object{}
		time.Sleep(10 * time.Second)
		if got := counts(s).Unannotated; got != 2 || walks != 2 {
			t.Errorf("got %d ServiceAccounts after %d walks and 10 seconds, want 2 after 2", got, walks)
		}
	})
}
