// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"maps"
	"sync"

	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// maxCached limits the memory of the cache: an entry for three clouds takes some
// 10 kB.
const maxCached = 512

// injectionCache holds the parsed annotations of ServiceAccounts: most pods are
// replicas of one another. The zero value is ready to use.
type injectionCache struct {
	mu      sync.RWMutex
	entries map[cacheKey]*cacheEntry
}

// cacheKey holds the inputs of an entry, in addition to the annotations and the
// settings of the program.
type cacheKey struct {
	namespace, serviceAccount string
	podExpirationSeconds      int64
	windows                   bool
	// leftToPeer is the provider that the pod leaves to a peer.
	leftToPeer string
}

type cacheEntry struct {
	annotations map[string]string // the source of the rest
	identity    *annotations.ServiceAccount
	injection   *mutate.Injection
}

// get returns the entry that was made of these annotations, or nil.
func (c *injectionCache) get(key cacheKey, annotations map[string]string) *cacheEntry {
	c.mu.RLock()
	entry := c.entries[key]
	c.mu.RUnlock()
	if entry == nil || !maps.Equal(entry.annotations, annotations) {
		return nil
	}
	return entry
}

// put keeps an entry. A full cache is emptied: the entries in use soon come back.
func (c *injectionCache) put(key cacheKey, entry *cacheEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil || len(c.entries) >= maxCached {
		c.entries = map[cacheKey]*cacheEntry{}
	}
	c.entries[key] = entry
}
