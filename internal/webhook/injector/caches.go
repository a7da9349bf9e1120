// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"fmt"
	"math"
	"runtime/debug"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Caches contain the objects of the cluster that the handlers read. The caller starts them.
type Caches struct{ ServiceAccounts, Namespaces *metadatacache.Cache }

// NewCaches returns the caches of a cluster. recorder counts the lookups of ServiceAccounts.
func NewCaches(config *rest.Config, recorder metadatacache.Recorder, log logr.Logger) (Caches, error) {
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
	create := func(o metadatacache.Options, limit int64) *metadatacache.Cache {
		o.Reads, o.MaxTotalBytes, o.Logger = reads, limit, log.WithName(o.Resource.Resource)
		return metadatacache.New(o)
	}
	serviceAccounts := ServiceAccountCacheOptions(client)
	serviceAccounts.Recorder = recorder
	// 100,000 ServiceAccounts, of which 10,000 are annotated, take about 20 MiB. Namespaces are
	// few.
	limit := cacheBytes()
	return Caches{create(serviceAccounts, limit), create(NamespaceCacheOptions(client), limit/4)}, nil
}

// cacheBytes returns the memory limit for cached ServiceAccounts: a part of GOMEMLIMIT, which
// the chart sets.
func cacheBytes() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return bounds.CacheBytes(limit)
	}
	return 32 << 20
}

// ServiceAccountCacheOptions returns the options of a cache that keeps the parts
// of ServiceAccounts that the handlers read. The caller may add limits and a recorder.
func ServiceAccountCacheOptions(client metadata.Interface) metadatacache.Options {
	return metadatacache.Options{
		Client:   client,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"},
		Label:    annotations.IdentityLabel,
		MaxBytes: annotations.MaxKeptBytes,
	}
}

// NamespaceCacheOptions is like ServiceAccountCacheOptions for namespaces.
func NamespaceCacheOptions(client metadata.Interface) metadatacache.Options {
	return metadatacache.Options{
		Client:   client,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Label:    annotations.Inject,
		MaxBytes: annotations.MaxNamespaceBytes,
	}
}
