// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/provider"
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
	namespaces := []annotations.Object{{Name: "ns"}, {Name: "disabled", Label: "disabled"}, {Name: "false", Label: "false"}, {Name: "other", Label: "true"}}
	identity := map[string]string{"lanyard.dev/aws-role-arn": "r"}
	region := map[string]string{"lanyard.dev/aws-region": "r"}
	for name, test := range map[string]struct {
		namespace string
		object    annotations.Object
		want      metrics.ServiceAccounts
	}{
		"without annotations it is unannotated":             {"ns", annotations.Object{}, metrics.ServiceAccounts{Unannotated: 1}},
		"with only the label it is unannotated":             {"ns", annotations.Object{Label: "enabled"}, metrics.ServiceAccounts{Unannotated: 1}},
		"with an identity and the label it is annotated":    {"ns", annotations.Object{Annotations: identity, Label: "enabled"}, metrics.ServiceAccounts{Annotated: 1}},
		"a user's label guards it as well":                  {"ns", annotations.Object{Annotations: identity, Label: "required"}, metrics.ServiceAccounts{Annotated: 1}},
		"without the label it is unguarded":                 {"ns", annotations.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Unguarded: 1}},
		"with another value of the label it is unguarded":   {"ns", annotations.Object{Annotations: identity, Label: "true"}, metrics.ServiceAccounts{Annotated: 1, Unguarded: 1}},
		"without an identity it needs no label":             {"ns", annotations.Object{Annotations: region}, metrics.ServiceAccounts{Annotated: 1}},
		"with annotations that are too large it is counted": {"ns", annotations.Object{TooLarge: 1}, metrics.ServiceAccounts{Annotated: 1}},
		"a namespace can be excluded by its name":           {"kube-system", annotations.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Excluded: 1}},
		"a namespace can be disabled by its label":          {"disabled", annotations.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Excluded: 1}},
		"the label false means the same":                    {"false", annotations.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Excluded: 1}},
		"another value of that label does not exclude":      {"other", annotations.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Unguarded: 1}},
		"with the label it is excluded too":                 {"disabled", annotations.Object{Annotations: identity, Label: "enabled"}, metrics.ServiceAccounts{Annotated: 1, Excluded: 1}},
		"without an identity it is not excluded":            {"disabled", annotations.Object{Annotations: region}, metrics.ServiceAccounts{Annotated: 1}},
		"of an unknown namespace it is unguarded":           {"unknown", annotations.Object{Annotations: identity}, metrics.ServiceAccounts{Annotated: 1, Unguarded: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.object.Namespace, test.object.Name = test.namespace, "app"
			got := countServiceAccounts(slices.Values([]annotations.Object{test.object}), slices.Values(namespaces), s)
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
		cached := []annotations.Object{{Namespace: "ns", Name: "a"}}
		walks := 0
		all := func(yield func(annotations.Object) bool) {
			walks++
			slices.Values(cached)(yield)
		}
		counts := recentCounts(all, slices.Values([]annotations.Object{}))
		s := &annotations.Settings{}
		for range 1000 {
			if got := counts(s).Unannotated; got != 1 {
				t.Fatalf("got %d ServiceAccounts, want 1", got)
			}
		}
		if walks != 1 {
			t.Errorf("got %d walks for 1000 scrapes at once, want 1", walks)
		}
		cached = append(cached, annotations.Object{Namespace: "ns", Name: "b"})
		time.Sleep(10 * time.Second)
		if got := counts(s).Unannotated; got != 2 || walks != 2 {
			t.Errorf("got %d ServiceAccounts after %d walks and 10 seconds, want 2 after 2", got, walks)
		}
	})
}
