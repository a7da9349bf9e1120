// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"

	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// MaxBodyBytes is the longest review that is read. The apiserver takes objects
// of up to 3 MiB, and an update's review holds two of them.
const MaxBodyBytes = 7 << 20

// maxInFlightBytes of reviews are decided about at one time; the others wait,
// as long as the apiserver does. It bounds the memory, and lets through some
// hundred usual reviews at once.
const maxInFlightBytes = 16 << 20

// Bounds of the time that one request may take.
const (
	// defaultTimeout is the apiserver's own for a webhook that sets none.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the longest that a webhook configuration can set.
	maxTimeout = 30 * time.Second
	// answerMargin of the apiserver's timeout is kept for the way back: an
	// answer that comes too late is none, and with failurePolicy Ignore would
	// let the pod through.
	answerMargin = 10 // per cent
)

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
	inFlight *semaphore.Weighted
}

// NewHandler gives a Handler that asks decider and counts with recorder. The
// logger gets one line for every answer but an untroubled one.
func NewHandler(decider Decider, recorder Recorder, log logr.Logger) *Handler {
	reader, _ := decider.(ObjectReader)
	return &Handler{decider: decider, reader: reader, recorder: recorder, log: log, inFlight: semaphore.NewWeighted(maxInFlightBytes)}
}

// ServeHTTP answers one review. What is no review gets a 4xx; every review
// gets an answer, a denial if all else fails.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	timeout, err := requestTimeout(r)
	if err != nil {
		h.reject(w, start, http.StatusBadRequest, err)
		return
	}
	// A body that trickles in is not waited for any longer than that. Where the
	// connection knows no deadline, the client's end of it has to do.
	_ = http.NewResponseController(w).SetReadDeadline(start.Add(timeout))
	body, code, err := readBody(w, r)
	if err != nil {
		h.reject(w, start, code, err)
		return
	}
	request, err := parseReview(body, h.reader)
	if err != nil {
		h.reject(w, start, http.StatusBadRequest, err)
		return
	}
	// The server cancels its requests when it begins to shut down; an answer
	// that is being made is still wanted then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout-timeout*answerMargin/100)
	defer cancel()
	response := h.decide(ctx, request, int64(len(body)))
	h.answer(w, request, &response)
	h.record(request, &response, time.Since(start))
}

// decide turns a panic into a denial: the net/http server would close the
// connection, and with failurePolicy Ignore that lets the pod through.
func (h *Handler) decide(ctx context.Context, request *Request, size int64) (response Response) {
	if err := h.inFlight.Acquire(ctx, size); err != nil {
		return Response{Reason: reason.Overloaded, Denial: &Denial{
			Code:    http.StatusInternalServerError,
			Message: "lanyard: " + string(reason.Overloaded) + ": too many other reviews at once; try again",
		}}
	}
	defer h.inFlight.Release(size)
	defer func() {
		if p := recover(); p != nil {
			h.log.Error(fmt.Errorf("panic: %T", p), "Deciding failed", "stack", string(debug.Stack()))
			response = Response{Reason: reason.InternalError, Denial: &Denial{
				Code:    http.StatusInternalServerError,
				Message: "lanyard: " + string(reason.InternalError) + ": the webhook failed on this object; its log says where",
			}}
		}
	}()
	return h.decider.Decide(ctx, request)
}

func (h *Handler) answer(w http.ResponseWriter, request *Request, response *Response) {
	answer := appendReview(make([]byte, 0, 512+len(response.Patch)*4/3), request.UID, response)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	if _, err := w.Write(answer); err != nil {
		h.log.Error(err, "Answer could not be sent", "namespace", request.Namespace, "name", request.Name)
	}
}

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
	log := h.log.WithValues("resource", request.resource(), "namespace", request.Namespace, "name", request.Name,
		"uid", request.UID, "reason", response.Reason)
	switch {
	case response.Denial != nil:
		log.Info("Refused", "code", response.Denial.Code, "message", response.Denial.Message)
	case len(response.Warnings) > 0:
		log.Info("Allowed with warnings", "findings", response.Findings, "warnings", response.Warnings)
	default:
		log.V(1).Info("Allowed", "findings", response.Findings, "patchBytes", len(response.Patch))
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

// requestTimeout is what the apiserver says it will wait, in ?timeout=.
func requestTimeout(r *http.Request) (time.Duration, error) {
	value := r.URL.Query().Get("timeout")
	if value == "" {
		return defaultTimeout, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return 0, fmt.Errorf("query parameter timeout: got %q, want a positive duration such as 10s", value)
	}
	return min(timeout, maxTimeout), nil
}

// readBody gives the body, or the status that refuses it.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, code int, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, http.StatusMethodNotAllowed, fmt.Errorf("got method %s, want POST", r.Method)
	}
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != "application/json" {
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("got Content-Type %q, want application/json", contentType)
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength <= MaxBodyBytes {
		// ReadFrom wants room left at the end to find that there is no more.
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, MaxBodyBytes)); err != nil {
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("got a body of more than %d bytes", tooLarge.Limit)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, http.StatusBadRequest, errors.New("got a body that is shorter than its Content-Length")
		}
		return nil, http.StatusBadRequest, fmt.Errorf("read body: %w", err)
	}
	return buf.Bytes(), http.StatusOK, nil
}
