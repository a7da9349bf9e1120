// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// endless is a text that the log must shorten, and errEndless an error with it.
var (
	endless    = strings.Repeat(`"\`, 1<<10)
	errEndless = fmt.Errorf("%q", endless)
)

// decisions decides by the name of the object.
var decisions = decide(func(_ context.Context, request *admission.Request[object]) (admission.Response, error) {
	switch request.Operation {
	case admission.Create:
		return admission.Response{}, &reason.Error{Reason: reason.InvalidAnnotation, Err: errEndless}
	default:
		return admission.Response{Reason: reason.Injected, Warnings: []string{endless, endless}, Findings: []string{endless}}, nil
	}
})

// newLogged returns a handler that logs as lanyard-webhook does by default.
func newLogged(format func(*bytes.Buffer) slog.Handler) (*admission.Handler[object], *bytes.Buffer) {
	var log bytes.Buffer
	return admission.NewHandler(decisions, admission.NewBudget(), newFixture(decisions), logr.FromSlogHandler(format(&log))), &log
}

func textLines(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) }
func jsonLines(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) }

// Anyone in the cluster can send reviews, with any names and texts.
func TestALogLineIsShort(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]func(*bytes.Buffer) slog.Handler{"text": textLines, "JSON": jsonLines} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler, log := newLogged(format)
			for _, character := range []string{"a", `\"`, `\\`, "\u0080", `\u0080`, `\u0001`} {
				long := strings.Repeat(character, 1000)
				for _, member := range []string{"namespace", "name", "resource", "subResource", "uid", "operation"} {
					for _, operation := range []string{"CREATE", "UPDATE"} {
						body := strings.NewReplacer("CREATE", operation, `"oldObject":null`, `"oldObject":{}`, `"team"`, `"`+long+`"`, `"pod"`, `"`+long+`"`,
							`"u1"`, `"`+strings.Repeat(character, 20)+`"`, `"pods"`, `"`+long+`"`).Replace(review)
						body = strings.Replace(body, `"`+member+`":"`, `"`+member+`":"`+long, 1)
						handler.ServeHTTP(httptest.NewRecorder(), newRequest(t, "/", body))
					}
				}
			}
			for line := range strings.Lines(log.String()) {
				if len(line) > 1<<10 {
					t.Errorf("got a line of %d bytes, want at most 1,024: %s", len(line), line)
				}
			}
			if !strings.Contains(log.String(), "Denied") || !strings.Contains(log.String(), "warnings") || !strings.Contains(log.String(), "Rejected") {
				t.Errorf("got log %s, want lines of all kinds", log)
			}
		})
	}
}

// forged returns a review with a unique name.
func forged(t *testing.T, namespace string) func(*admission.Handler[object]) {
	t.Helper()
	return func(handler *admission.Handler[object]) {
		handler.ServeHTTP(httptest.NewRecorder(), newRequest(t, "/", strings.Replace(review, "team", namespace, 1)))
	}
}

func TestReviewsDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler, log := newLogged(textLines)
		for range 200 {
			forged(t, "team")(handler)
		}
		if got := strings.Count(log.String(), "\n"); got != 10 {
			t.Errorf("got %d lines for 200 reviews of one namespace, want 10", got)
		}
		log.Reset()
		forged(t, "another")(handler)
		if got := strings.Count(log.String(), "namespace=another"); got != 1 {
			t.Errorf("got %d lines for another namespace, want one", got)
		}
		time.Sleep(time.Second)
		log.Reset()
		forged(t, "team")(handler)
		if !strings.Contains(log.String(), "linesLeftOutBefore=190") {
			t.Errorf("got log %s after a second, want the number of lines that were left out", log)
		}
	})
}

func TestReviewsOfManyNamespacesDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler, log := newLogged(textLines)
		for i := range 300 {
			forged(t, fmt.Sprint("team-", i))(handler)
		}
		if got := strings.Count(log.String(), "\n"); got != 256 {
			t.Errorf("got %d lines for reviews of 300 namespaces at once, want 256", got)
		}
	})
}
