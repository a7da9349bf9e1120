// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	admissionv1 "k8s.io/api/admission/v1"
	kubejson "k8s.io/apimachinery/pkg/util/json"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// review is the review that every test starts from: the creation of a pod.
const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1",` +
	`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
	`"namespace":"team","name":"pod","operation":"CREATE","object":{"kind":"Pod"},"oldObject":null,"dryRun":false}}`

// object is the JSON of an object.
type object struct{ JSON string }

// decide is a Decider that is a function.
type decide func(ctx context.Context, request *admission.Request[object]) (admission.Response, error)

func (d decide) Decide(ctx context.Context, request *admission.Request[object]) (admission.Response, error) {
	return d(ctx, request)
}

func (d decide) Read(s *rawjson.Scanner, into *object) error {
	raw, err := s.Raw()
	into.JSON = string(raw)
	if strings.Contains(into.JSON, "panics") {
		panic(into.JSON)
	}
	if strings.Contains(into.JSON, "unreadable") {
		return errors.New("cannot be read")
	}
	return err
}

// fault returns a Decider that fails for every object.
func fault(r reason.Reason, message string) decide {
	return func(context.Context, *admission.Request[object]) (admission.Response, error) {
		return admission.Response{}, &reason.Fault{Reason: r, Err: errors.New(message)}
	}
}

// allow returns a Decider with one answer.
func allow(response admission.Response) decide {
	return func(context.Context, *admission.Request[object]) (admission.Response, error) { return response, nil }
}

// deny returns a Decider with one denial.
func deny(r reason.Reason, message string) decide {
	return func(context.Context, *admission.Request[object]) (admission.Response, error) {
		return admission.Response{}, &reason.Error{Reason: r, Err: errors.New(message)}
	}
}

// patchOf returns a patch that adds value.
func patchOf(value string) admission.Patch {
	var p rawjson.Patch
	p.Add("/a", []byte(value))
	return &p
}

// record is a call of a Recorder, without the duration.
type record struct{ Resource, Result, Reason string }

// fixture is a handler with everything that it writes to.
type fixture struct {
	handler *admission.Handler[object]
	budget  *admission.Budget

	mu        sync.Mutex
	records   []record
	durations []time.Duration
	log       strings.Builder
}

func newFixture(decider admission.Decider[object]) *fixture {
	f := &fixture{budget: admission.NewBudget()}
	f.handler = admission.NewHandler(decider, f.budget, f, funcr.New(func(prefix, args string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.log.WriteString(prefix + args + "\n")
		// More verbose than any line.
	}, funcr.Options{Verbosity: 100}))
	return f
}

func (f *fixture) RecordAdmission(resource, result, reason string, duration time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = append(f.records, record{resource, result, reason})
	f.durations = append(f.durations, duration)
}

// post sends a review, and returns the response.
func (f *fixture) post(t *testing.T, body string) (*http.Response, string) {
	t.Helper()
	return f.send(t, newRequest(t, "/", body))
}

// send sends a request without a connection, and returns the response.
func (f *fixture) send(t *testing.T, request *http.Request) (*http.Response, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	f.handler.ServeHTTP(recorder, request)
	response := recorder.Result()
	defer response.Body.Close()
	return response, recorder.Body.String()
}

// newRequest returns a request as the handler gets it from an API server.
func newRequest(t *testing.T, target, body string) *http.Request {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	return request
}

// decode reads a response as the API server does, case-sensitively, but more strictly:
// it rejects unknown fields, and text after the response.
func decode(t *testing.T, answer string) *admissionv1.AdmissionReview {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(answer))
	decoder.DisallowUnknownFields()
	var review admissionv1.AdmissionReview
	if err := decoder.Decode(&review); err != nil {
		t.Fatalf("answer %s: %v", answer, err)
	}
	if decoder.More() {
		t.Fatalf("answer %s: something comes after the review", answer)
	}
	review = admissionv1.AdmissionReview{}
	if err := kubejson.Unmarshal([]byte(answer), &review); err != nil {
		t.Fatalf("answer %s: %v", answer, err)
	}
	return &review
}

// untroubled is a decision without findings.
var untroubled = admission.Response{Reason: reason.NoIdentity}
