// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"maps"
	"sync"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Limits of a Cache. A user chooses the annotations of a ServiceAccount, and with the lifetime
// that a pod asks for, any number of entries of one ServiceAccount.
const (
	// maxCachedBytes is the memory of all entries. An entry for three clouds takes about 15 kB.
	maxCachedBytes = 2 << 20
	// An entry takes less than entryBytes, and copiesOfText times the texts of its annotations
	// and variables.
	entryBytes, copiesOfText = 4 << 10, 8
)

// Cache caches the results of Prepare, because most pods are replicas. All calls must use the
// same settings. The zero value is ready to use, and safe for concurrent use.
type Cache struct {
	mu      sync.RWMutex
	entries map[key]*Prepared
	bytes   int // of the entries, at most maxCachedBytes
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
	if old := c.entries[k]; old != nil {
		c.bytes -= old.bytes()
	}
	c.bytes += entry.bytes()
	if c.entries == nil || c.bytes > maxCachedBytes {
		c.entries, c.bytes = map[key]*Prepared{}, entry.bytes()
	}
	c.entries[k] = entry
}

// bytes returns an upper bound of the memory of the entry.
func (p *Prepared) bytes() int {
	text := 0
	for key, value := range p.annotations {
		text += len(key) + len(value)
	}
	for _, variable := range p.injection.environment {
		text += len(variable)
	}
	return entryBytes + copiesOfText*text
}
