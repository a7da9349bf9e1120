// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"iter"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// countsAge is the maximum age of the counts in a scrape. Counting locks the caches, and
// Prometheus rarely scrapes more often than every 15 seconds.
const countsAge = 10 * time.Second

// recentCounts returns a function that counts the ServiceAccounts by state, at most once per
// countsAge, because any client that reaches the port can scrape.
func recentCounts(serviceAccounts, namespaces iter.Seq[annotations.Object]) func(*annotations.Settings) metrics.ServiceAccounts {
	var mu sync.Mutex
	var last time.Time
	var counts metrics.ServiceAccounts
	return func(s *annotations.Settings) metrics.ServiceAccounts {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) >= countsAge {
			counts, last = countServiceAccounts(serviceAccounts, namespaces, s), time.Now()
		}
		return counts
	}
}

// countServiceAccounts counts ServiceAccounts by state. Namespaces count as excluded if the
// settings list them or their label opts out.
func countServiceAccounts(serviceAccounts, namespaces iter.Seq[annotations.Object],
	s *annotations.Settings,
) metrics.ServiceAccounts {
	excluded := sets.New(s.ExcludedNamespaces...)
	for namespace := range namespaces {
		if s.Excludes(namespace.Name, namespace.Label) {
			excluded.Insert(namespace.Name)
		}
	}
	var counts metrics.ServiceAccounts
	for serviceAccount := range serviceAccounts {
		if len(serviceAccount.Annotations) == 0 && serviceAccount.TooLarge == 0 {
			counts.Unannotated++
			continue
		}
		counts.Annotated++
		switch {
		case !s.AskForIdentity(serviceAccount.Annotations):
		case excluded.Has(serviceAccount.Namespace):
			counts.Excluded++
		case !annotations.IsGuarded(serviceAccount.Label):
			counts.Unguarded++
		}
	}
	return counts
}
