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

// MaxCached is the most entries of a Cache, and Len their number.
const MaxCached = maxCached

func (c *Cache) Len() int { return len(c.entries) }
