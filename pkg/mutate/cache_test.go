// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"strconv"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// A cluster may have any number of ServiceAccounts.
func TestACacheKeepsALimitedNumberOfBytes(t *testing.T) {
	t.Parallel()
	settings := newSettings(t)
	var cache mutate.Cache
	prepare := func(name, audience string) *mutate.Prepared {
		pod, err := read(`{"spec":{"serviceAccountName":"`+name+`"}}`, settings)
		if err != nil {
			t.Fatal(err)
		}
		choice, _ := mutate.Choose(settings, "team", pod, nil)
		prepared, err := cache.Prepare(&choice, &annotations.Object{Namespace: "team", Name: name, Annotations: map[string]string{annotations.Audience: audience}})
		if err != nil {
			t.Fatal(err)
		}
		return prepared
	}
	first := prepare("a", "x")
	if prepare("a", "x") != first {
		t.Error("got a new entry for the same ServiceAccount, want the one of the cache")
	}
	if prepare("a", "y") == first {
		t.Error("got the entry of the former annotations")
	}
	emptied := false
	for i := range 1000 {
		prepare("a"+strconv.Itoa(i), "x")
		entries, counted, sum := cache.Used()
		if counted != sum || sum > mutate.MaxCachedBytes {
			t.Fatalf("got %d bytes for entries of %d bytes, want the same, and at most %d", counted, sum, mutate.MaxCachedBytes)
		}
		emptied = emptied || i > 0 && entries == 1
	}
	if !emptied {
		t.Error("got a cache that was never full")
	}
}
