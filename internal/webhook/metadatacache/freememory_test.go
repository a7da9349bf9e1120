// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFreeMemoryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, noReads(t))
		fill(t, c, serviceAccount("ns", "app"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*freeInterval)
		defer cancel()
		begun := time.Now()
		if err := FreeMemory(ctx, c); err != nil {
			t.Errorf("got error %v, want none", err)
		}
		if took := time.Since(begun); took != 3*freeInterval {
			t.Errorf("got the end after %v, want %v", took, 3*freeInterval)
		}
	})
}
