// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
)

// ServiceAccountCacheOptions returns the options of a cache that keeps the parts
// of ServiceAccounts that the handlers read. The caller may add limits and a recorder.
func ServiceAccountCacheOptions(client metadata.Interface, keys *annotations.Keys) metadatacache.Options {
	return metadatacache.Options{
		Client:   client,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"},
		Prefix:   keys.Prefix,
		Label:    keys.IdentityLabel,
		MaxBytes: annotations.MaxKeptBytes,
	}
}

// NamespaceCacheOptions is like ServiceAccountCacheOptions for namespaces.
func NamespaceCacheOptions(client metadata.Interface, keys *annotations.Keys) metadatacache.Options {
	return metadatacache.Options{
		Client:   client,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Prefix:   keys.Prefix,
		Label:    keys.Inject,
		MaxBytes: annotations.MaxNamespaceBytes,
	}
}
