// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
)

func TestAResponseHoldsNoMemoryForItsDecision(t *testing.T) {
	t.Parallel()
	b := NewBudget()
	s := b.newShare("10.0.0.1:1234")
	s.body = b.bodies.Claim(s.client)
	if err := s.body.Take(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.takeDecision(t.Context(), 100<<10); err != nil {
		t.Fatal(err)
	}
	if err := s.takeResponse(t.Context(), 200<<10); err != nil {
		t.Fatal(err)
	}
	if got, want := b.Held(), (Held{Responses: 200 << 10}); got != want {
		t.Errorf("got %+v held, want %+v: only the response", got, want)
	}
	s.release()
	if got := b.Held(); got != (Held{}) {
		t.Errorf("got %+v held at the end, want nothing", got)
	}
}
