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
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"

	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// maxKeptMemory is the most that is kept for the next request.
const maxKeptMemory = 512 << 10

// answerMargin of the apiserver's timeout is kept for the way back: an answer
// that comes too late is none, and with failurePolicy Ignore would let the pod
// through.
const answerMargin = 10 // per cent

// Decider makes the decision about a request. The context ends shortly before
// the apiserver stops waiting.
type Decider interface {
	Decide(ctx context.Context, request *Request) Response
}

// Recorder counts answered requests.
type Recorder interface {
	// RecordAdmission counts one. resource is "pods" and the like; result is
	// "allowed", "denied" or "error".
	RecordAdmission(resource, result, reason string, duration time.Duration)
}

// Handler serves the admission webhook protocol over HTTP. Make it with
// NewHandler.
type Handler struct {
	decider  Decider
	reader   ObjectReader // the decider, where it is one
	recorder Recorder
	log      logr.Logger
	large    *semaphore.Weighted // of bytes, see maxLargeBytes
	memories sync.Pool           // of *memory
}

// NewHandler gives a Handler that asks decider and counts with recorder. The
// logger gets one line for every answer but an untroubled one.
func NewHandler(decider Decider, recorder Recorder, log logr.Logger) *Handler {
	reader, _ := decider.(ObjectReader)
	return &Handler{decider: decider, reader: reader, recorder: recorder, log: log, large: semaphore.NewWeighted(maxLargeBytes)}
}

// ServeHTTP answers one review. What is no review gets a 4xx; every review
// gets an answer, a denial if all else fails.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	timeout, code, err := checkRequest(w, r)
	if err != nil {
		h.reject(w, start, code, err)
		return
	}
	m, _ := h.memories.Get().(*memory)
	if m == nil {
		m = new(memory)
	}
	defer h.release(m)
	// The server cancels its requests when it begins to shut down; an answer
	// that is being made is still wanted then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout-timeout*answerMargin/100)
	defer cancel()
	done, code, err := h.read(ctx, &m.body, w, r, start.Add(timeout))
	defer done()
	var request *Request
	var response Response
	switch {
	case err == nil:
		code = http.StatusBadRequest
		request, response, err = h.review(ctx, m)
	case errors.Is(err, errNoRoom):
		request, err = parseBeginning(m.body.Bytes())
		response = denial(reason.Overloaded, "too many other large reviews at once; try again")
	}
	if err != nil {
		h.reject(w, start, code, err)
		return
	}
	h.answer(w, &m.answer, request, &response)
	h.record(request, &response, time.Since(start))
}

// memory is what one request after another is read into and answered from.
type memory struct {
	body, answer bytes.Buffer
	patch        []byte
}

// release keeps the memory for the next request, unless it is large.
func (h *Handler) release(m *memory) {
	if m.body.Cap()+m.answer.Cap()+cap(m.patch) <= maxKeptMemory {
		m.body.Reset()
		m.answer.Reset()
		h.memories.Put(m)
	}
}

// review parses a review and has it decided about. Its error is for a body that
// is no review.
func (h *Handler) review(ctx context.Context, m *memory) (*Request, Response, error) {
	request, err := parseReview(m.body.Bytes(), h.reader)
	if err != nil {
		return nil, Response{}, err
	}
	request.Room = m.patch
	response := h.decide(ctx, request)
	if response.Patch != nil {
		m.patch = response.Patch
	}
	return request, response, nil
}

// denial is an answer for a fault that is not the user's.
func denial(why reason.Reason, message string) Response {
	return Response{Reason: why, Denial: &Denial{
		Code: http.StatusInternalServerError, Message: "lanyard: " + string(why) + ": " + message,
	}}
}

// decide turns a panic into a denial: the net/http server would close the
// connection, and with failurePolicy Ignore that lets the pod through.
func (h *Handler) decide(ctx context.Context, request *Request) (response Response) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error(fmt.Errorf("panic: %T", p), "Deciding failed", "stack", string(debug.Stack()))
			response = denial(reason.InternalError, "the webhook failed on this object; its log says where")
		}
	}()
	return h.decider.Decide(ctx, request)
}

func (h *Handler) answer(w http.ResponseWriter, buffer *bytes.Buffer, request *Request, response *Response) {
	buffer.Grow(512 + base64.StdEncoding.EncodedLen(len(response.Patch)))
	answer := appendReview(buffer.AvailableBuffer(), request.UID, response)
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(answer))}
	if _, err := w.Write(answer); err != nil {
		h.log.Error(err, "Answer could not be sent", "namespace", request.Namespace, "name", request.Name)
	}
}

var jsonType = []string{"application/json"}

// record counts the answer and logs it. Names are all that is logged of an
// object.
func (h *Handler) record(request *Request, response *Response, duration time.Duration) {
	result := "allowed"
	if response.Denial != nil {
		result = "denied"
		if response.Denial.Code >= http.StatusInternalServerError {
			result = "error"
		}
	}
	h.recorder.RecordAdmission(request.resource(), result, string(response.Reason), duration)
	log := h.log.V(1)
	if response.Denial != nil || len(response.Warnings) > 0 {
		log = h.log
	}
	if !log.Enabled() {
		return
	}
	log = log.WithValues("resource", request.resource(), "namespace", request.Namespace, "name", request.Name,
		"uid", request.UID, "reason", response.Reason)
	switch {
	case response.Denial != nil:
		log.Info("Refused", "code", response.Denial.Code, "message", response.Denial.Message)
	case len(response.Warnings) > 0:
		log.Info("Allowed with warnings", "findings", response.Findings, "warnings", response.Warnings)
	default:
		log.Info("Allowed", "findings", response.Findings, "patchBytes", len(response.Patch))
	}
}

// resource is "pods" or, with a subresource, "pods/ephemeralcontainers".
func (r *Request) resource() string {
	if r.SubResource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.SubResource
}

// reject answers what is no review.
func (h *Handler) reject(w http.ResponseWriter, start time.Time, code int, err error) {
	h.log.Info("Rejected a request that is no admission review", "code", code, "message", err.Error())
	h.recorder.RecordAdmission("", "error", string(reason.InvalidReview), time.Since(start))
	http.Error(w, "lanyard: "+err.Error(), code)
}
