// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"reflect"
	"sync"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// maxCached bounds the cache's memory: a value for three clouds takes some 15 kB.
const maxCached = 512

// cache keeps what was made of the annotations of the accounts that pods are
// created for: most pods are one of many. The zero value is ready to use.
type cache struct {
	mu     sync.RWMutex
	values map[cacheKey]*cached
}

// cacheKey is all that an addition depends on beside the account's annotations
// and the program's settings.
type cacheKey struct {
	namespace, serviceAccount string
	podExpirationSeconds      int64
	windows                   bool
}

type cached struct {
	annotations map[string]string // what the others were made of
	identity    *annotations.Identity
	addition    *mutate.Addition
}

// get gives what was made of just these annotations, nil where there is
// nothing yet. A lookup never changes a map that it gave out: another content
// is another map.
func (c *cache) get(key cacheKey, annotations map[string]string) *cached {
	c.mu.RLock()
	value := c.values[key]
	c.mu.RUnlock()
	if value == nil || reflect.ValueOf(value.annotations).UnsafePointer() != reflect.ValueOf(annotations).UnsafePointer() {
		return nil
	}
	return value
}

// put keeps a value. Once there are too many, all go: those in use are soon
// there again.
func (c *cache) put(key cacheKey, value *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil || len(c.values) >= maxCached {
		c.values = map[cacheKey]*cached{}
	}
	c.values[key] = value
}
