// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
)

func TestEachCacheHasItsLimit(t *testing.T) {
	t.Parallel()
	caches, err := injector.Connect(&rest.Config{}, nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	_, accounts := caches.ServiceAccounts.Bytes()
	_, namespaces := caches.Namespaces.Bytes()
	wantAccounts, wantNamespaces := metadatacache.DefaultBytes()
	if accounts <= 0 || namespaces <= 0 || accounts != wantAccounts || namespaces != wantNamespaces {
		t.Errorf("got %d and %d bytes for ServiceAccounts and Namespaces, want %d and %d", accounts, namespaces, wantAccounts, wantNamespaces)
	}
}
