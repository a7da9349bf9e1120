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

// MaxCachedBytes is the most memory of a Cache.
const MaxCachedBytes = maxCachedBytes

// Size returns the number of the entries, and their memory.
func (c *Cache) Size() (entries, bytes int) { return len(c.entries), c.bytes }
