// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

func TestResponsesReleaseTheMemoryOfDecisions(t *testing.T) {
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
	if err := s.takeResponse(t.Context(), 300<<10); err != nil {
		t.Fatal(err)
	}
	if s.body.Bytes() == 0 || s.decision.Bytes() == 0 {
		t.Error("got no memory for the objects before the response is encoded, want it held")
	}
	if err := s.finish(t.Context(), 200<<10); err != nil {
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

// patched is a Decider with a patch that is not encoded yet.
type patched struct {
	raw
	encoded bool
}

func (p *patched) Decide(context.Context, *Request[string]) (Response, error) {
	return Response{Reason: reason.Injected, Patch: p}, nil
}

func (p *patched) Size() int { return 1 << 20 }

func (p *patched) Bytes() []byte {
	p.encoded = true
	return []byte("[]")
}

func (p *patched) RecordAdmission(string, string, string, time.Duration) {}

func TestAPatchIsEncodedWhenThereIsMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget, decider := NewBudget(), new(patched)
		handler := NewHandler(decider, budget, decider, logr.Discard())
		post := func() int {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?timeout=1s", strings.NewReader(
				`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{}}}`))
			request.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			return answer.Code
		}
		other := budget.responses.Claim(netip.MustParseAddr("10.0.0.3"))
		if err := other.Take(t.Context(), bounds.Responses-2<<20); err != nil {
			t.Fatal(err)
		}
		if code := post(); code != http.StatusServiceUnavailable || decider.encoded {
			t.Errorf("without memory: got status %d, and a patch that is encoded: %t, want 503 and false", code, decider.encoded)
		}
		other.Keep(0)
		if code := post(); code != http.StatusOK || !decider.encoded {
			t.Errorf("with memory: got status %d, and a patch that is encoded: %t, want 200 and true", code, decider.encoded)
		}
	})
}

func TestDecisionBytesCountsTheElementsOfLists(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`[{},{"a":{}},{}]`:     3,
		`{"a":{},"b":null}`:    1,
		`[null,[{}],null,"}"]`: 1,
		`{"a":["x",1,":{"]}`:   1,
		`{"a": {}}`:            2, // more than there are, but never fewer
	} {
		empty := DecisionBytes([]byte(strings.Repeat(" ", len(text))))
		if got := (DecisionBytes([]byte(text)) - empty) / elementBytes; got != want {
			t.Errorf("%s: got %d elements, want %d", text, got, want)
		}
	}
}
