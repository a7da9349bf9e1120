// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// Decider decides about requests for objects of type T.
type Decider[T any] interface {
	// Read reads the object that is the next value of s. It replaces the former
	// content of object. The result may refer to the text of s.
	Read(s *jsonscan.Scanner, object *T) error
	// Decide decides about a request. The context ends shortly before the API
	// server stops waiting. A *reason.Error denies the object; every other error
	// counts as a fault of the program. The response may refer to the objects of the
	// request.
	Decide(ctx context.Context, request *Request[T]) (Response, error)
}

// Response is the decision to allow an object.
type Response struct {
	// Patch is applied to the object.
	Patch jsonpatch.Patch
	// Reason is shown in the audit annotation "reason".
	Reason reason.Reason
	// Findings are shown in the audit annotation "findings": what was decided about
	// single containers.
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
	large    *semaphore.Weighted // in bytes, see maxLargeBytes
	memories sync.Pool           // of *memory[T]
}

// NewHandler returns a Handler that asks decider and counts with recorder. It logs
// denials and warnings; everything else only at V(1).
func NewHandler[T any](decider Decider[T], recorder Recorder, log logr.Logger) *Handler[T] {
	return &Handler[T]{decider: decider, recorder: recorder, log: log, large: semaphore.NewWeighted(maxLargeBytes)}
}

// memory holds the buffers and objects of one request. A later request uses them
// again.
type memory[T any] struct {
	body, answer      bytes.Buffer
	request           Request[T]
	object, oldObject T
}

// maxKeptBytes is the size of the largest buffers that are kept for the next
// request.
const maxKeptBytes = 512 << 10

func (h *Handler[T]) take() *memory[T] {
	if m, ok := h.memories.Get().(*memory[T]); ok {
		return m
	}
	return new(memory[T])
}

// release keeps the memory for the next request, unless the buffers are large.
func (h *Handler[T]) release(m *memory[T]) {
	if m.body.Cap()+m.answer.Cap() <= maxKeptBytes {
		m.body.Reset()
		m.answer.Reset()
		h.memories.Put(m)
	}
}

// answerMargin is the percentage of the API server's timeout that is reserved for
// sending the response. A response that arrives too late is lost, and with failurePolicy
// Ignore the pod would be created without credentials.
const answerMargin = 10

// ServeHTTP answers one AdmissionReview. Other requests get a 4xx. If the decision
// about an AdmissionReview fails, the response is a denial.
func (h *Handler[T]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	m := h.take()
	defer h.release(m)
	timeout, err := requestTimeout(r)
	if err == nil {
		err = checkRequest(r)
	}
	if err != nil {
		h.reject(w, start, err)
		return
	}
	// The server cancels the contexts of its requests when it begins to shut down.
	// The API server still waits for the response then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout-timeout*answerMargin/100)
	defer cancel()
	release, err := h.readBody(ctx, &m.body, w, r, start.Add(timeout))
	defer release()
	var response Response
	switch {
	case err == nil:
		response, err = h.review(ctx, m)
	case errors.Is(err, errOverloaded):
		err = h.overloaded(m)
	}
	if _, ok := errors.AsType[*statusError](err); ok {
		h.reject(w, start, err)
		return
	}
	denied := denial(err)
	h.answer(w, m, &response, denied)
	h.record(&m.request.Attributes, &response, denied, time.Since(start))
}

// overloaded returns the error of a request of which only the beginning was read.
// The API server sends the UID there, before the objects.
func (h *Handler[T]) overloaded(m *memory[T]) error {
	_ = h.parse(m) // the end is missing
	if m.request.UID == "" {
		return badRequest(errOverloaded)
	}
	return &reason.Error{Reason: reason.Overloaded, Err: errOverloaded}
}

// review parses the body and decides about it. It turns a panic into an error: the
// server would close the connection, and with failurePolicy Ignore the pod would be
// created without credentials.
func (h *Handler[T]) review(ctx context.Context, m *memory[T]) (response Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error(fmt.Errorf("panic: %T", p), "Panic in admission handler", "stack", string(debug.Stack()))
			err = &reason.Error{Reason: reason.InternalError, Err: errors.New("the webhook failed on this object; its log has the details")}
		}
	}()
	if err := h.parse(m); err != nil {
		return Response{}, badRequest(err)
	}
	if err := m.request.validate(); err != nil {
		return Response{}, badRequest(err)
	}
	if err := m.request.readErr; err != nil {
		return Response{}, err
	}
	return h.decider.Decide(ctx, &m.request)
}

// denial returns the error as a denial, or nil if there is no error. A fault of the
// program denies the object too.
func denial(err error) *reason.Error {
	var denied *reason.Error
	if err != nil && !errors.As(err, &denied) {
		denied = &reason.Error{Reason: reason.InternalError, Err: err}
	}
	return denied
}

func (h *Handler[T]) answer(w http.ResponseWriter, m *memory[T], response *Response, denied *reason.Error) {
	m.answer.Grow(512 + response.Patch.Size()*4/3)
	answer := appendReview(m.answer.AvailableBuffer(), m.request.UID, response, denied)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	if _, err := w.Write(answer); err != nil {
		h.log.Error(err, "Failed to send the response", "namespace", m.request.Namespace, "name", m.request.Name)
	}
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
	log = log.WithValues("resource", request.resource(), "namespace", request.Namespace, "name", request.Name, "uid", request.UID, "reason", why)
	switch {
	case denied != nil:
		log.Info("Denied", "code", code(denied.Reason), "message", denied.Err.Error())
	case len(response.Warnings) > 0:
		log.Info("Allowed with warnings", "findings", response.Findings, "warnings", response.Warnings)
	default:
		log.Info("Allowed", "findings", response.Findings, "patchBytes", response.Patch.Size())
	}
}

// reject answers a request that is not an AdmissionReview.
func (h *Handler[T]) reject(w http.ResponseWriter, start time.Time, err error) {
	status := http.StatusBadRequest
	if e, ok := errors.AsType[*statusError](err); ok {
		status = e.code
	}
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	h.log.Info("Rejected a request that is not an AdmissionReview", "code", status, "message", err.Error())
	h.recorder.RecordAdmission("", "error", string(reason.InvalidReview), time.Since(start))
	http.Error(w, messagePrefix+err.Error(), status)
}
