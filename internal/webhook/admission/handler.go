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
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Decider decides about requests for objects of type T.
type Decider[T any] interface {
	// Read reads the next value of s into object and replaces its previous content. object
	// may then refer to the text of s.
	Read(s *rawjson.Scanner, object *T) error
	// Decide decides about a request. The context ends shortly before the API server stops
	// waiting. A *reason.Error denies the object. Any other error is a fault, for which the
	// API server applies the failure policy. The response may refer to the objects of the
	// request.
	Decide(ctx context.Context, request *Request[T]) (Response, error)
}

// Response is the response for an allowed object.
type Response struct {
	// Patch is the JSON Patch that the API server applies, or nil if there is none.
	Patch Patch
	// Reason is shown in the audit annotation "reason".
	Reason reason.Reason
	// Findings are decisions about single containers, for the audit annotation "findings".
	Findings []string
	// Warnings are shown to the client that made the request. The API server truncates them
	// if they are too long in total.
	Warnings []string
}

// Patch is a JSON Patch that is encoded when Bytes is called.
type Patch interface {
	// Size returns an upper bound of the length of the patch.
	Size() int
	// Bytes returns the JSON of the patch. The Handler reserves memory before it calls Bytes.
	Bytes() []byte
}

// size returns an upper bound of the memory for the AdmissionReview with its patch.
func (r *Response) size() int {
	size := reviewBytes
	for _, texts := range [][]string{r.Findings, r.Warnings} {
		for _, text := range texts {
			size += 2*len(text) + len(messagePrefix) + len(`"",`) // some characters take two bytes
		}
	}
	if r.Patch != nil {
		size += r.Patch.Size() + base64.StdEncoding.EncodedLen(r.Patch.Size())
	}
	return size
}

// Recorder counts requests.
type Recorder interface {
	// RecordAdmission counts one response. resource is "pods", for example, and result is
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
}

// NewHandler returns a Handler that asks decider and counts with recorder. All handlers of a
// process must share one budget. The handler logs denials, warnings and faults, and
// everything else at V(1).
func NewHandler[T any](decider Decider[T], budget *Budget, recorder Recorder, log logr.Logger) *Handler[T] {
	return &Handler[T]{decider: decider, recorder: recorder, log: log, budget: budget}
}

// memory contains the buffers of one request. Later requests reuse it.
type memory[T any] struct {
	body              []byte
	scanner           rawjson.Scanner // of the body
	request           Request[T]
	object, oldObject T
	patch             []byte
	cost              int // the most memory that the rest takes
}

// Larger buffers and objects are not kept for the next request, which is not charged for
// them.
const maxKeptBuffer, maxKeptObjects = usualBodyBytes, usualDecisionBytes

// kept returns a value from the pool, or a new value.
func kept[P any](pool *sync.Pool) *P {
	if p, ok := pool.Get().(*P); ok {
		return p
	}
	return new(P)
}

// reply is an HTTP response, and the request's share of the budget.
type reply struct {
	share
	code        int
	contentType string
	body        bytes.Buffer
}

// answerMargin is the percentage of the API server's timeout that is reserved for
// sending the response. A response that arrives too late is lost, and with failurePolicy
// Ignore the pod would be created without credentials.
const answerMargin = 10

// ServeHTTP responds to one AdmissionReview, with 4xx to other requests, and with 503 if no
// decision can be made.
func (h *Handler[T]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := kept[reply](&h.replies)
	a.share = h.budget.newShare(r.RemoteAddr)
	defer func() {
		a.release()
		if a.body.Cap() <= maxKeptBuffer {
			a.body.Reset()
			h.replies.Put(a)
		}
	}()
	h.reply(a, w, r)
	if err := a.finish(r.Context(), a.body.Cap()); err != nil {
		a.code, a.contentType, a.body = http.StatusServiceUnavailable, plainText, bytes.Buffer{}
		a.body.WriteString(messagePrefix + err.Error() + "\n")
	}
	if err := a.send(w); err != nil {
		h.logLine(topic{reason: unsent}, "Failed to send the response", "error", err.Error())
	}
}

// send writes the response. A slow client holds memory only for the response, and loses it if
// others need it.
func (a *reply) send(w http.ResponseWriter) error {
	connection := http.NewResponseController(w)
	_ = connection.SetWriteDeadline(time.Now().Add(writeTimeout))
	a.response.StartIdle(func() { _ = connection.SetWriteDeadline(time.Unix(0, 1)) })
	defer a.response.EndIdle()
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	if a.code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	w.WriteHeader(a.code)
	_, err := w.Write(a.body.Bytes())
	return err
}

// unsent is the reason of log lines about clients that do not read.
const unsent = "unsent"

// reviewBytes is the usual length of an AdmissionReview without its patch.
const reviewBytes = 512

// plainText is the content type of a response that is not an AdmissionReview.
const plainText = "text/plain; charset=utf-8"

// reply fills in the response to a request.
func (h *Handler[T]) reply(a *reply, w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	a.code, a.contentType = http.StatusOK, "application/json"
	timeout, err := requestTimeout(r)
	if err == nil {
		err = checkRequest(r)
	}
	if err != nil {
		// Otherwise net/http would wait for the body before it responds.
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(0, 1))
		w.Header().Set("Connection", "close") // the deadline can end the context of the connection
		h.reject(a, start, err)
		return
	}
	// The context of the request ends when the caller disconnects or its connection is closed
	// for another one. Nobody waits for the decision then.
	ctx := bounds.WithClient(r.Context(), a.client)
	ctx, cancel := context.WithDeadline(ctx, start.Add(timeout-timeout*answerMargin/100))
	defer cancel()
	m := kept[memory[T]](&h.memories)
	m.request, m.patch, m.cost = Request[T]{}, nil, 0
	var response Response
	if err = h.readBody(ctx, m, &a.share, w, r); err == nil {
		response, err = h.review(ctx, m, &a.share)
	}
	var invalid *statusError
	var denied *reason.Error
	switch {
	case errors.As(err, &invalid):
		h.reject(a, start, err)
	case err == nil || errors.As(err, &denied):
		a.body.Grow(reviewBytes + base64.StdEncoding.EncodedLen(len(m.patch)))
		a.body.Write(appendReview(a.body.AvailableBuffer(), m.request.UID, &response, m.patch, denied))
		h.record(&m.request.Attributes, &response, len(m.patch), denied, time.Since(start))
	default:
		h.fail(a, &m.request.Attributes, start, err)
	}
	if cap(m.body) <= maxKeptBuffer && m.cost <= maxKeptObjects {
		h.memories.Put(m)
	}
}

// review parses the body, decides and encodes the patch. It turns a panic into a fault:
// otherwise the server would close the connection, and the API server would not log a cause.
func (h *Handler[T]) review(ctx context.Context, m *memory[T], s *share) (response Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			about := topic{reason: reason.InternalError}
			h.logLine(about, "Panic in admission handler", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = errors.New("the webhook failed on this object; its log has the details")
		}
	}()
	m.cost = DecisionBytes(m.body)
	if err := s.takeDecision(ctx, m.cost); err != nil {
		return Response{}, err
	}
	if err := h.parse(m); err != nil {
		return Response{}, badRequest(err)
	}
	if err := m.request.validate(); err != nil {
		return Response{}, badRequest(err)
	}
	response, err = h.decider.Decide(ctx, &m.request)
	if err == nil {
		err = s.takeResponse(ctx, response.size())
	}
	if err == nil && response.Patch != nil {
		m.cost += response.Patch.Size()
		m.patch = response.Patch.Bytes()
	}
	return response, err
}

// record counts and logs the request. It logs only the names of the object.
func (h *Handler[T]) record(request *Attributes, response *Response, patchBytes int, denied *reason.Error, duration time.Duration) {
	result, why := "allowed", response.Reason
	if denied != nil {
		result, why = "denied", denied.Reason
		if code(denied.Reason) >= http.StatusInternalServerError {
			result = "error"
		}
	}
	h.recorder.RecordAdmission(request.resource(), result, string(why), duration)
	about := topic{request.Namespace, why}
	switch {
	case denied != nil:
		h.logLine(about, "Denied", append(request.logValues(), "code", code(denied.Reason), "message", loggedText(denied.Err.Error()))...)
	case len(response.Warnings) > 0:
		h.logLine(about, "Allowed with warnings", append(request.logValues(), "warnings", loggedText(strings.Join(response.Warnings, "; ")))...)
	case h.log.V(1).Enabled():
		values := append(request.logValues(), "reason", why, "findings", response.Findings, "patchBytes", patchBytes)
		h.log.V(1).Info("Allowed", values...)
	}
}

// logValues identifies the request in a log line.
func (r *Attributes) logValues() []any {
	return []any{
		"resource", loggedName(r.resource(), maxLoggedID), "namespace", loggedName(r.Namespace, maxLoggedName),
		"name", loggedName(r.Name, maxLoggedName), "uid", loggedName(r.UID, maxLoggedID),
	}
}

// fail responds to a request about which no decision could be made.
func (h *Handler[T]) fail(a *reply, request *Attributes, start time.Time, err error) {
	fault, ok := errors.AsType[*reason.Fault](err)
	if !ok {
		fault = &reason.Fault{Reason: reason.InternalError, Err: err}
	}
	h.recorder.RecordAdmission(request.resource(), "error", string(fault.Reason), time.Since(start))
	about := topic{request.Namespace, fault.Reason}
	h.logLine(about, "Failed", append(request.logValues(), "error", loggedText(fault.Err.Error()))...)
	a.code = http.StatusServiceUnavailable
	// The API server's error repeats the message of a Status.
	a.body.Write(append(appendStatus([]byte(`{"apiVersion":"v1","kind":"Status","metadata":{},`), fault.Error(), a.code), '}'))
}

// reject responds to a request that is not an AdmissionReview.
func (h *Handler[T]) reject(a *reply, start time.Time, err error) {
	a.code = http.StatusBadRequest
	if e, ok := errors.AsType[*statusError](err); ok {
		a.code = e.code
	}
	message := texts.Cut(err.Error(), maxMessageBytes)
	about := topic{reason: reason.InvalidReview}
	h.logLine(about, "Rejected a request that is not an AdmissionReview", "code", a.code, "message", loggedText(message))
	h.recorder.RecordAdmission("", "error", string(reason.InvalidReview), time.Since(start))
	a.contentType = plainText
	a.body.WriteString(messagePrefix + message + "\n")
}

// logLine logs a line about a request, subject to the rate limit.
func (h *Handler[T]) logLine(about topic, message string, values ...any) {
	leftOut, ok := h.budget.lines.allow(about)
	if !ok {
		return
	}
	values = append(values, "reason", about.reason)
	if leftOut > 0 {
		values = append(values, "linesLeftOutBefore", leftOut)
	}
	h.log.Info(message, values...)
}
