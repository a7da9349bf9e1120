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

// The bounds of all stages contain this memory once.
func TestTheCachesShareTheirMemory(t *testing.T) {
	t.Parallel()
	caches, err := injector.Connect(&rest.Config{}, nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	_, accounts := caches.ServiceAccounts.Bytes()
	_, namespaces := caches.Namespaces.Bytes()
	if sum := metadatacache.DefaultBytes(); accounts <= 0 || namespaces <= 0 || accounts+namespaces != sum {
		t.Errorf("got %d and %d bytes for ServiceAccounts and Namespaces, want %d together", accounts, namespaces, sum)
	}
}
