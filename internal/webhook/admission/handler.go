// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Decider decides about requests for objects of type T.
type Decider[T any] interface {
	// Read reads the object that is the next value of s. It replaces the previous
	// content of object, which may refer to the text of s afterwards. The cost is the
	// most memory that Decide takes for the object, the response included, in bytes.
	Read(s *jsonscan.Scanner, object *T) (cost int, err error)
	// Decide decides about a request. The context ends shortly before the API
	// server stops waiting. A *reason.Error denies the object. Every other error is a
	// fault: the API server applies the failure policy. The response may refer to the
	// objects of the request.
	Decide(ctx context.Context, request *Request[T]) (Response, error)
}

// Response is the decision to allow an object.
type Response struct {
	// Patch is applied to the object.
	Patch jsonpatch.Patch
	// Reason is shown in the audit annotation "reason".
	Reason reason.Reason
	// Findings are shown in the audit annotation "findings": decisions about single
	// containers.
	Findings []string
	// Warnings are shown to the client that made the request. They must be short:
	// the API server truncates them if they are too long in total.
	Warnings []string
}

// Recorder counts requests.
type Recorder interface {
	// RecordAdmission counts one. resource is "pods" and the like; result is
	// "allowed", "denied" or "error".
	RecordAdmission(resource, result, reason string, duration time.Duration)
}

// Handler serves the admission webhook protocol over HTTP for objects of type T.
// Make it with NewHandler.
type Handler[T any] struct {
	decider  Decider[T]
	recorder Recorder
	log      logr.Logger
	budget   *Budget
	memories sync.Pool // of *memory[T]
	replies  sync.Pool // of *reply

	// problems limits the log lines about requests that have no decision.
	problems *rate.Limiter
	unlogged atomic.Int64 // problems since the last line
}

// problemsBurst is how many problems are logged at once, before there is one line
// each second.
const problemsBurst = 10

// NewHandler returns a Handler that asks decider and counts with recorder. All
// handlers of a process must have the same budget. The handler logs denials,
// warnings and faults; everything else only at V(1).
func NewHandler[T any](decider Decider[T], budget *Budget, recorder Recorder, log logr.Logger) *Handler[T] {
	return &Handler[T]{
		decider: decider, recorder: recorder, log: log, budget: budget,
		problems: rate.NewLimiter(rate.Every(time.Second), problemsBurst),
	}
}

// memory holds the buffers that one request needs until it is decided. A later request uses it
// again.
type memory[T any] struct {
	body              bytes.Buffer
	request           Request[T]
	object, oldObject T
	cost              int // of both objects
}

// maxKeptBytes is the size of the largest memory that is kept for the next request.
const maxKeptBytes = 512 << 10

// kept returns a value from the pool, or a new value.
func kept[P any](pool *sync.Pool) *P {
	if p, ok := pool.Get().(*P); ok {
		return p
	}
	return new(P)
}

// reply is an HTTP response.
type reply struct {
	code        int
	contentType string
	body        bytes.Buffer
}

// answerMargin is the percentage of the API server's timeout that is reserved for
// sending the response. A response that arrives too late is lost, and with failurePolicy
// Ignore the pod would be created without credentials.
const answerMargin = 10

// ServeHTTP answers one AdmissionReview. Other requests get a 4xx. If no decision
// can be made, the response is a 503.
func (h *Handler[T]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := share{budget: h.budget}
	defer func() { s.keep(0) }()
	a := h.reply(w, r, &s)
	// A client that reads slowly only holds the response.
	s.keep(int64(a.body.Len()))
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	if a.code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	w.WriteHeader(a.code)
	if _, err := w.Write(a.body.Bytes()); err != nil {
		h.logProblem("Failed to send the response", "error", err.Error())
	}
	if a.body.Cap() <= maxKeptBytes {
		a.body.Reset()
		h.replies.Put(a)
	}
}

// reviewBytes is the usual length of an AdmissionReview without its patch.
const reviewBytes = 512

// reply returns the response to a request.
func (h *Handler[T]) reply(w http.ResponseWriter, r *http.Request, s *share) *reply {
	start := time.Now()
	a := kept[reply](&h.replies)
	a.code, a.contentType = http.StatusOK, "application/json"
	timeout, err := requestTimeout(r)
	if err == nil {
		err = checkRequest(r)
	}
	if err != nil {
		h.reject(a, start, err)
		return a
	}
	// The server cancels the contexts of its requests when it begins to shut down.
	// The API server still waits for the response then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout-timeout*answerMargin/100)
	defer cancel()
	m := kept[memory[T]](&h.memories)
	m.request, m.cost = Request[T]{}, 0
	var response Response
	if err = h.readBody(ctx, &m.body, s, w, r, start.Add(timeout)); err == nil {
		response, err = h.review(ctx, m, s)
	}
	var invalid *statusError
	var denied *reason.Error
	switch {
	case errors.As(err, &invalid):
		h.reject(a, start, err)
	case err == nil || errors.As(err, &denied):
		a.body.Grow(reviewBytes + base64.StdEncoding.EncodedLen(response.Patch.Size()))
		a.body.Write(appendReview(a.body.AvailableBuffer(), m.request.UID, &response, denied))
		h.record(&m.request.Attributes, &response, denied, time.Since(start))
	default:
		h.fail(a, &m.request.Attributes, start, err)
	}
	if m.body.Cap() <= maxKeptBytes && m.cost <= maxKeptBytes {
		m.body.Reset()
		h.memories.Put(m)
	}
	return a
}

// review parses the body and decides about it. It turns a panic into a fault: the
// server would only close the connection, without a word in the log of the API
// server.
func (h *Handler[T]) review(ctx context.Context, m *memory[T], s *share) (response Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error(fmt.Errorf("panic: %T", p), "Panic in admission handler", "stack", string(debug.Stack()))
			err = errors.New("the webhook failed on this object; its log has the details")
		}
	}()
	if err := h.parse(m); err != nil {
		return Response{}, badRequest(err)
	}
	if err := m.request.validate(); err != nil {
		return Response{}, badRequest(err)
	}
	if err := s.takeDecision(ctx, m.cost); err != nil {
		return Response{}, &reason.Fault{Reason: reason.Overloaded, Err: errOverloaded}
	}
	return h.decider.Decide(ctx, &m.request)
}

// record counts the request and logs it. It logs only names of the object.
func (h *Handler[T]) record(request *Attributes, response *Response, denied *reason.Error, duration time.Duration) {
	result, why := "allowed", response.Reason
	if denied != nil {
		result, why = "denied", denied.Reason
		if code(denied.Reason) >= http.StatusInternalServerError {
			result = "error"
		}
	}
	h.recorder.RecordAdmission(request.resource(), result, string(why), duration)
	log := h.log.V(1)
	if denied != nil || len(response.Warnings) > 0 {
		log = h.log
	}
	if !log.Enabled() {
		return
	}
	log = log.WithValues(request.logValues(why)...)
	switch {
	case denied != nil:
		log.Info("Denied", "code", code(denied.Reason), "message", texts.Cut(denied.Err.Error(), maxMessageBytes))
	case len(response.Warnings) > 0:
		log.Info("Allowed with warnings", "findings", response.Findings, "warnings", response.Warnings)
	default:
		log.Info("Allowed", "findings", response.Findings, "patchBytes", response.Patch.Size())
	}
}

// logValues names the request in a log line.
func (r *Attributes) logValues(why reason.Reason) []any {
	return []any{
		"resource", texts.Cut(r.resource(), maxShownBytes), "namespace", texts.Cut(r.Namespace, maxShownBytes),
		"name", texts.Cut(r.Name, maxNameBytes), "uid", r.UID, "reason", why,
	}
}

// fail answers a request about which no decision could be made.
func (h *Handler[T]) fail(a *reply, request *Attributes, start time.Time, err error) {
	fault, ok := errors.AsType[*reason.Fault](err)
	if !ok {
		fault = &reason.Fault{Reason: reason.InternalError, Err: err}
	}
	h.recorder.RecordAdmission(request.resource(), "error", string(fault.Reason), time.Since(start))
	h.logProblem("Failed", append(request.logValues(fault.Reason), "error", texts.Cut(fault.Err.Error(), maxMessageBytes))...)
	a.code = http.StatusServiceUnavailable
	// The API server's error repeats the message of a Status.
	a.body.Write(append(appendStatus([]byte(`{"apiVersion":"v1","kind":"Status","metadata":{},`), fault.Error(), a.code), '}'))
}

// reject answers a request that is not an AdmissionReview.
func (h *Handler[T]) reject(a *reply, start time.Time, err error) {
	a.code = http.StatusBadRequest
	if e, ok := errors.AsType[*statusError](err); ok {
		a.code = e.code
	}
	message := texts.Cut(err.Error(), maxMessageBytes)
	h.logProblem("Rejected a request that is not an AdmissionReview", "code", a.code, "message", message)
	h.recorder.RecordAdmission("", "error", string(reason.InvalidReview), time.Since(start))
	a.contentType = "text/plain; charset=utf-8"
	a.body.WriteString(messagePrefix + message + "\n")
}

// logProblem logs a line, unless there are too many.
func (h *Handler[T]) logProblem(message string, values ...any) {
	if !h.problems.Allow() {
		h.unlogged.Add(1)
		return
	}
	if n := h.unlogged.Swap(0); n > 0 {
		values = append(values, "linesLeftOutBefore", n)
	}
	h.log.Info(message, values...)
}
