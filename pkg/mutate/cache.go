// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"maps"
	"sync"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// maxCached limits the memory of a Cache: an entry for three clouds takes about 10 kB.
const maxCached = 512

// Cache caches the results of Prepare, because most pods are replicas. All calls must use the
// same settings. The zero value is ready to use, and safe for concurrent use.
type Cache struct {
	mu      sync.RWMutex
	entries map[key]*Prepared
}

// Prepare returns the result of choice.Prepare, from the cache if possible.
func (c *Cache) Prepare(choice *Choice, serviceAccount *annotations.Object) (*Prepared, error) {
	if len(serviceAccount.Annotations) == 0 {
		return choice.Prepare(serviceAccount) // which takes no time
	}
	key := choice.key()
	if entry := c.get(key); entry != nil && maps.Equal(entry.annotations, serviceAccount.Annotations) {
		return entry, nil
	}
	entry, err := choice.Prepare(serviceAccount)
	if entry != nil {
		c.put(key, entry)
	}
	return entry, err
}

func (c *Cache) get(k key) *Prepared {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[k]
}

// put adds an entry. It empties a full cache, because entries in use are soon added again.
func (c *Cache) put(k key, entry *Prepared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil || len(c.entries) >= maxCached {
		c.entries = map[key]*Prepared{}
	}
	c.entries[k] = entry
}
