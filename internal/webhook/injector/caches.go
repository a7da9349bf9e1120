// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Caches contain the objects of the cluster that the handlers read. The caller starts them.
type Caches struct{ ServiceAccounts, Namespaces *metadatacache.Cache }

// Connect returns the caches of a cluster, as NewCaches does.
func Connect(config *rest.Config, recorder metadatacache.Recorder, log logr.Logger) (Caches, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil // a limit would delay pods; the API server limits requests by priority and fairness
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return Caches{}, fmt.Errorf("create Kubernetes client: %w", err)
	}
	reads, err := metadatacache.NewReadClient(config)
	if err != nil {
		return Caches{}, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return NewCaches(client, reads, recorder, log), nil
}

// NewCaches returns caches of the parts of objects that the handlers read. client lists and
// watches, reads makes the live reads, and recorder counts the lookups of ServiceAccounts.
func NewCaches(client, reads metadata.Interface, recorder metadatacache.Recorder, log logr.Logger) Caches {
	create := func(resource, label string, maxBytes int, limit int64, recorder metadatacache.Recorder) *metadatacache.Cache {
		return metadatacache.New(metadatacache.Options{
			Client: client, Reads: reads, Resource: schema.GroupVersionResource{Version: "v1", Resource: resource},
			Label: label, MaxBytes: maxBytes, MaxTotalBytes: limit, Recorder: recorder, Logger: log.WithName(resource),
		})
	}
	// 100,000 ServiceAccounts, of which 10,000 are annotated, take about 20 MiB. Namespaces are
	// few.
	accounts, namespaces := metadatacache.DefaultBytes()
	return Caches{
		ServiceAccounts: create("serviceaccounts", annotations.IdentityLabel, annotations.MaxKeptBytes, accounts, recorder),
		Namespaces:      create("namespaces", annotations.Inject, annotations.MaxNamespaceBytes, namespaces, nil),
	}
}
