// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// countServiceAccounts counts ServiceAccounts by state. The webhook is called
// neither for the excluded namespaces nor for those that opt out by their label.
func countServiceAccounts(serviceAccounts, namespaces iter.Seq2[types.NamespacedName, metadatacache.Object],
	s *annotations.Settings,
) metrics.ServiceAccounts {
	excluded := sets.New(s.ExcludedNamespaces...)
	for id, namespace := range namespaces {
		if s.Excludes(id.Name, namespace.Label) {
			excluded.Insert(id.Name)
		}
	}
	var counts metrics.ServiceAccounts
	for id, serviceAccount := range serviceAccounts {
		if !serviceAccount.HasAnnotations() {
			counts.Unannotated++
			continue
		}
		counts.Annotated++
		switch {
		case !s.AskForIdentity(serviceAccount.Annotations):
		case excluded.Has(id.Namespace):
			counts.Excluded++
		case !annotations.IsGuarded(serviceAccount.Label):
			counts.Unguarded++
		}
	}
	return counts
}
