// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"sync"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// maxCached limits the memory of the cache: an entry for three clouds takes some
// 10 kB.
const maxCached = 512

// injectionCache caches what the pods of a ServiceAccount get, because most pods are replicas. The
// zero value is ready to use.
type injectionCache struct {
	mu      sync.RWMutex
	entries map[mutate.Key]*mutate.Prepared
}

// prepare is choice.Prepare with a cache.
func (c *injectionCache) prepare(choice *mutate.Choice, account *annotations.Object) (*mutate.Prepared, error) {
	if len(account.Annotations) == 0 {
		return choice.Prepare(account) // which takes no time
	}
	key := choice.Key()
	if entry := c.get(key); entry != nil && entry.MadeFrom(account) {
		return entry, nil
	}
	entry, err := choice.Prepare(account)
	if entry != nil {
		c.put(key, entry)
	}
	return entry, err
}

func (c *injectionCache) get(key mutate.Key) *mutate.Prepared {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[key]
}

// put keeps an entry. A full cache is emptied: the entries in use soon come back.
func (c *injectionCache) put(key mutate.Key, entry *mutate.Prepared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil || len(c.entries) >= maxCached {
		c.entries = map[mutate.Key]*mutate.Prepared{}
	}
	c.entries[key] = entry
}
