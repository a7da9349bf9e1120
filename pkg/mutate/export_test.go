// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

// The parts of a decision, for tests of one part.
type Result = Decision

var (
	NewInjection = newInjection
	Create       = create
	AddEphemeral = addEphemeral
	LacksMount   = lacksMount
)

// MaxCachedBytes is the limit of a Cache.
const MaxCachedBytes = maxCachedBytes

// Used returns the number of entries, the bytes that the Cache counts, and those of its entries.
func (c *Cache) Used() (entries, counted, sum int) {
	for _, entry := range c.entries {
		sum += entry.bytes()
	}
	return len(c.entries), c.bytes, sum
}
