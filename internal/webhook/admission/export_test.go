// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

// Held is the memory of a Budget that requests hold, in bytes.
type Held struct{ Bodies, Decisions, Responses int64 }

// Held returns the memory that requests hold.
func (b *Budget) Held() Held {
	held := func(p *pool) (sum int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, bytes := range p.held {
			sum += bytes
		}
		return sum
	}
	return Held{held(b.bodies), held(b.usual) + held(b.large), held(b.responses)}
}
