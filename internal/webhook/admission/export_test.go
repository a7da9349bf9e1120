// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

// Held is the memory of a Budget that requests hold, in bytes.
type Held struct{ Bodies, Decisions, Responses int64 }

// Held returns the memory that requests hold.
func (b *Budget) Held() Held {
	return Held{b.bodies.Held(), b.usual.Held() + b.large.Held(), b.responses.Held()}
}
