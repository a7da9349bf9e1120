// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission implements the admission webhook protocol of Kubernetes,
// admission.k8s.io/v1: it parses an AdmissionReview, asks a Decider, and writes the response.
package admission

import (
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Operations that Lanyard is asked about.
const (
	Create = "CREATE"
	Update = "UPDATE"
)

const (
	apiVersion = "admission.k8s.io/v1"
	kind       = "AdmissionReview"
	// messagePrefix starts every message that a user sees.
	messagePrefix = "lanyard: "
	// maxUIDBytes is longer than any UID.
	maxUIDBytes = 128
	// maxMessageBytes limits a message. A message repeats annotations.
	maxMessageBytes = 16 << 10
)

// MaxBodyBytes limits an AdmissionReview. The API server accepts objects of up to 3 MiB, and
// the review of an update contains two.
const MaxBodyBytes = 7 << 20

// Time limits of one request.
const (
	// defaultTimeout is the API server's default of timeoutSeconds.
	defaultTimeout = 10 * time.Second
	// minTimeout and maxTimeout are the bounds of timeoutSeconds. A caller with a shorter
	// timeout could cause more work than it has connections.
	minTimeout, maxTimeout = time.Second, 30 * time.Second
	// bodyTimeout limits reading a body, and writeTimeout writing a response. API servers
	// send and read without delay.
	bodyTimeout, writeTimeout = 2 * time.Second, 2 * time.Second
)

// statusError is returned for a request that is not an AdmissionReview. code is the HTTP status of
// the response.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// badRequest returns the error for a malformed request.
func badRequest(err error) error { return &statusError{http.StatusBadRequest, err} }

// checkRequest checks the request without its body.
func checkRequest(r *http.Request) error {
	if r.Method != http.MethodPost {
		return &statusError{http.StatusMethodNotAllowed, fmt.Errorf("got method %s, want POST", texts.Cut(r.Method, texts.MaxShown))}
	}
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != "application/json" {
		return &statusError{http.StatusUnsupportedMediaType, fmt.Errorf("got Content-Type %q, want application/json", texts.Cut(contentType, texts.MaxShown))}
	}
	if r.ContentLength < 0 {
		return &statusError{http.StatusLengthRequired, errors.New("got no Content-Length, want one")}
	}
	if r.ContentLength > MaxBodyBytes {
		return &statusError{http.StatusRequestEntityTooLarge, fmt.Errorf("got a body of more than %d bytes", MaxBodyBytes)}
	}
	return nil
}

// requestTimeout returns how long the API server waits, from the query parameter timeout.
func requestTimeout(r *http.Request) (time.Duration, error) {
	value := r.URL.Query().Get("timeout")
	if value == "" {
		return defaultTimeout, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return 0, badRequest(fmt.Errorf("query parameter timeout: got %q, want a positive duration such as 10s", texts.Cut(value, texts.MaxShown)))
	}
	return min(max(timeout, minTimeout), maxTimeout), nil
}

// Attributes identify the object and the operation of a request. Each is truncated to
// texts.MaxName, because the API server has not validated the name yet.
type Attributes struct {
	// UID is returned in the response.
	UID string
	// Group, Version, Resource and SubResource are the object's.
	Group, Version, Resource, SubResource string
	// Operation is Create or Update.
	Operation string
	// Namespace and Name are the object's. Name is empty if the API server has not
	// generated it yet.
	Namespace, Name string
}

// Request contains the parts of an AdmissionRequest that a decision needs.
type Request[T any] struct {
	Attributes
	// Object is the object, and OldObject the object before the update, or nil on Create.
	// Both are valid until the response is sent.
	Object, OldObject *T
}

// parse reads the body into the request. If it fails, the request contains the parts before
// the error.
func (h *Handler[T]) parse(m *memory[T]) error {
	s := &m.scanner
	s.Reset(m.body)
	defer s.Reset(nil) // keeps no memory for very deep objects
	switch {
	case len(m.body) == 0:
		return errors.New("got an empty body, want an AdmissionReview")
	case !utf8.Valid(m.body):
		return errors.New("got a body that is not valid UTF-8, want an AdmissionReview")
	}
	if s.Kind() != rawjson.Object {
		return fmt.Errorf("got %s, want an AdmissionReview object", rawjson.KindName(s.Kind()))
	}
	var gotVersion, gotKind string
	err := s.Object(func(key []byte) error {
		switch string(key) {
		case "apiVersion":
			return s.ReadCut(&gotVersion, texts.MaxShown)
		case "kind":
			return s.ReadCut(&gotKind, texts.MaxShown)
		case "request":
			return s.Object(func(key []byte) error {
				if err := h.parseMember(s, m, string(key)); err != nil {
					return fmt.Errorf("request.%s: %w", key, err)
				}
				return nil
			})
		}
		return nil
	})
	if err == nil {
		err = s.End()
	}
	switch {
	case err != nil:
		return fmt.Errorf("malformed AdmissionReview: %w", err)
	case gotVersion != apiVersion || gotKind != kind:
		return fmt.Errorf("got apiVersion %q and kind %q, want %q and %q", gotVersion, gotKind, apiVersion, kind)
	}
	return nil
}

// parseMember reads one member of the request.
func (h *Handler[T]) parseMember(s *rawjson.Scanner, m *memory[T], name string) (err error) {
	r := &m.request
	switch name {
	case "object":
		r.Object, err = h.parseObject(s, &m.object)
		return err
	case "oldObject":
		r.OldObject, err = h.parseObject(s, &m.oldObject)
		return err
	case "uid":
		return s.ReadCut(&r.UID, texts.MaxName)
	case "subResource":
		return s.ReadCut(&r.SubResource, texts.MaxName)
	case "operation":
		return s.ReadCut(&r.Operation, texts.MaxName)
	case "namespace":
		return s.ReadCut(&r.Namespace, texts.MaxName)
	case "name":
		return s.ReadCut(&r.Name, texts.MaxName)
	case "resource":
		return s.Object(func(key []byte) error {
			switch string(key) {
			case "group":
				return s.ReadCut(&r.Group, texts.MaxName)
			case "version":
				return s.ReadCut(&r.Version, texts.MaxName)
			case "resource":
				return s.ReadCut(&r.Resource, texts.MaxName)
			}
			return nil
		})
	}
	return nil
}

// parseObject lets the decider read an object. It returns nil for null.
func (h *Handler[T]) parseObject(s *rawjson.Scanner, object *T) (*T, error) {
	switch s.Kind() {
	case rawjson.Null:
		return nil, s.Skip()
	case rawjson.Object:
		return object, h.decider.Read(s, object)
	}
	return nil, fmt.Errorf("got %s, want object", rawjson.KindName(s.Kind()))
}

func (r *Request[T]) validate() error {
	switch {
	case r.UID == "":
		return errors.New("request.uid: got none, want one")
	case len(r.UID) > maxUIDBytes:
		return fmt.Errorf("request.uid: got %q, want at most %d bytes", texts.Cut(r.UID, texts.MaxShown), maxUIDBytes)
	case r.Operation != Create && r.Operation != Update:
		return fmt.Errorf("request.operation: got %q, want %s or %s; the rules of the webhook configuration are too wide", texts.Cut(r.Operation, texts.MaxShown), Create, Update)
	case r.Object == nil:
		return errors.New("request.object: got none, want an object")
	case r.Operation == Update && r.OldObject == nil:
		return errors.New("request.oldObject: got none, want an object")
	}
	return nil
}

// resource returns "pods" or, with a subresource, "pods/ephemeralcontainers".
func (r *Attributes) resource() string {
	if r.SubResource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.SubResource
}

// Unexpected returns the error for a request for another kind of object or operation.
func (r *Attributes) Unexpected(want string) error {
	got := fmt.Sprintf("%s of group %q, version %q, resource %q, subResource %q", r.Operation, r.Group, r.Version, r.Resource, r.SubResource)
	return &reason.Fault{Reason: reason.InvalidReview, Err: fmt.Errorf(
		"request: got %s, want %s; the rules of the webhook configuration are too wide", texts.Cut(got, 4*texts.MaxShown), want)}
}

// code returns the HTTP status of a denial: 400 or 403 for mistakes of the user, and 500 if
// clients should retry.
func code(r reason.Reason) int {
	switch r {
	case reason.IdentityNotAllowed, reason.IdentityRequired: // as the guard
		return http.StatusForbidden
	case reason.LookupFailed:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// statusReasons are the metav1.StatusReason of each code.
var statusReasons = map[int]string{
	http.StatusBadRequest:          "BadRequest",
	http.StatusForbidden:           "Forbidden",
	http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable:  "ServiceUnavailable",
}

// appendReview appends the AdmissionReview for the request with this UID: with the denial,
// if there is one, or the response.
func appendReview(buf []byte, uid string, r *Response, patch []byte, denied *reason.Error) []byte {
	buf = append(buf, `{"apiVersion":"`+apiVersion+`","kind":"`+kind+`","response":{"uid":`...)
	buf = rawjson.AppendString(buf, uid)
	if denied != nil {
		buf = append(buf, `,"allowed":false,"status":{`...)
		buf = appendStatus(buf, denied.Error(), code(denied.Reason))
		buf = append(buf, `},"auditAnnotations":{"reason":`...)
		buf = rawjson.AppendString(buf, string(denied.Reason))
		return append(buf, `}}}`...)
	}
	buf = append(buf, `,"allowed":true`...)
	if len(patch) > 0 {
		buf = append(buf, `,"patchType":"JSONPatch","patch":"`...)
		buf = base64.StdEncoding.AppendEncode(buf, patch)
		buf = append(buf, '"')
	}
	for i, warning := range r.Warnings {
		if i == 0 {
			buf = append(buf, `,"warnings":[`...)
		} else {
			buf = append(buf, ',')
		}
		buf = rawjson.AppendString(buf, messagePrefix+texts.Cut(warning, maxMessageBytes))
	}
	if len(r.Warnings) > 0 {
		buf = append(buf, ']')
	}
	buf = append(buf, `,"auditAnnotations":{"reason":`...)
	buf = rawjson.AppendString(buf, string(r.Reason))
	if len(r.Findings) > 0 {
		buf = append(buf, `,"findings":`...)
		buf = rawjson.AppendString(buf, strings.Join(r.Findings, "; "))
	}
	return append(buf, `}}}`...)
}

// appendStatus appends the members of a metav1.Status.
func appendStatus(buf []byte, message string, code int) []byte {
	buf = append(buf, `"status":"Failure","message":`...)
	buf = rawjson.AppendString(buf, messagePrefix+texts.Cut(message, maxMessageBytes))
	buf = append(buf, `,"reason":`...)
	buf = rawjson.AppendString(buf, statusReasons[code])
	buf = append(buf, `,"code":`...)
	buf = strconv.AppendInt(buf, int64(code), 10)
	if code == http.StatusInternalServerError {
		// The API server passes it on as Retry-After, after which client-go, and so kubectl
		// and controllers, retry.
		buf = append(buf, `,"details":{"retryAfterSeconds":1}`...)
	}
	return buf
}
