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
