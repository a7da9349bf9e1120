// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// A cluster may have any number of ServiceAccounts.
func TestACacheKeepsALimitedAmountOfMemory(t *testing.T) {
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
	_, one := cache.Size()
	if prepare("a", "y") == first {
		t.Error("got the entry of the former annotations")
	}
	if entries, bytes := cache.Size(); entries != 1 || bytes != one {
		t.Errorf("got %d entries of %d bytes, want the new one in place of the old one of %d", entries, bytes, one)
	}
	prepare("long", strings.Repeat("x", 100))
	if _, bytes := cache.Size(); bytes-one < one+100 {
		t.Errorf("got %d bytes for an entry of 100 bytes more than one of %d", bytes-one, one)
	}
	fit := mutate.MaxCachedBytes / one
	for i := range fit {
		prepare(strconv.Itoa(i), "x")
		if _, bytes := cache.Size(); bytes > mutate.MaxCachedBytes {
			t.Fatalf("got %d bytes, want at most %d", bytes, mutate.MaxCachedBytes)
		}
	}
	if entries, bytes := cache.Size(); entries >= fit || bytes != entries*one {
		t.Errorf("got %d entries of %d bytes, want those of %d after the cache was full", entries, bytes, fit)
	}
}
