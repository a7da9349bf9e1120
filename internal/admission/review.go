// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission speaks the Kubernetes admission webhook protocol,
// admission.k8s.io/v1: it takes a review apart, has a decision made, and
// writes the answer. What is decided is not its business.
package admission

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/base64parts"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// Operations that Lanyard is asked about.
const (
	Create = "CREATE"
	Update = "UPDATE"
)

const (
	apiVersion = "admission.k8s.io/v1"
	kind       = "AdmissionReview"
)

// Request is what a decision needs of an AdmissionRequest.
type Request struct {
	// UID is handed back in the answer.
	UID string
	// Group, Version, Resource and SubResource say what Object is.
	Group, Version, Resource, SubResource string
	// Operation is Create or Update.
	Operation string
	// Namespace and Name are the object's. A name may be yet to be made.
	Namespace, Name string
	// Object and OldObject are JSON objects; OldObject is nil on Create. They
	// are parts of the review and valid until the request is answered.
	Object, OldObject []byte
	// Read is what the Decider read of Object, where it is an ObjectReader, and
	// ReadErr why it could not.
	Read    any
	ReadErr error
	// Room is memory that a patch may be written into, so that it needs none of
	// its own. It may be nil, and is the patch's until the request is answered.
	Room []byte
}

// ObjectReader is a Decider that reads the request's object by itself, on the
// one way through the review: nothing has to look at the object twice.
type ObjectReader interface {
	// ReadObject reads the object that the scanner stands before. If it fails,
	// the request is decided about nevertheless.
	ReadObject(s *jsonscan.Scanner) (any, error)
}

// Response is a decision.
type Response struct {
	// Patch is a JSON Patch, nil for none.
	Patch []byte
	// PatchParts are those of the patch that are encoded already.
	PatchParts []base64parts.Part
	// Reason stands in the audit annotation "reason".
	Reason reason.Reason
	// Denial, where not nil, refuses the object.
	Denial *Denial
	// Findings stand in the audit annotation "findings": what was decided about
	// single containers.
	Findings []string
	// Warnings are shown to whoever made the request.
	Warnings []string
}

// Denial is why an object is refused.
type Denial struct {
	// Code is an HTTP status: 400 and 403 are the user's to mend, a 500 is
	// worth a second try, and clients are told so.
	Code int
	// Message is for a person.
	Message string
}

// parseReview reads an AdmissionReview with a request in it. reader, where
// there is one, reads the request's object.
func parseReview(body []byte, reader ObjectReader) (*Request, error) {
	request, err := readReview(body, reader)
	if err != nil {
		return nil, err
	}
	return request, request.validate()
}

// parseBeginning gives what the beginning of a review says of its request, if
// that is at least its UID. An apiserver writes all but the objects there.
func parseBeginning(body []byte) (*Request, error) {
	request, err := readReview(body, nil)
	if request == nil || request.UID == "" {
		return nil, err
	}
	return request, nil
}

// readReview reads an AdmissionReview. With an error it gives what it had read
// of the request until then, or nil.
func readReview(body []byte, reader ObjectReader) (*Request, error) {
	s := jsonscan.New(body)
	if s.Kind() == jsonscan.Invalid && len(body) == 0 {
		return nil, errors.New("got an empty body, want an AdmissionReview")
	}
	if s.Kind() != jsonscan.Object {
		return nil, fmt.Errorf("got %s, want an AdmissionReview object", s.Kind())
	}
	var gotVersion, gotKind string
	var request *Request
	err := s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "apiVersion":
			gotVersion, err = text(s)
		case "kind":
			gotKind, err = text(s)
		case "request":
			if s.Kind() == jsonscan.Object {
				request, err = parseRequest(s, reader)
			}
		}
		return err
	})
	if err == nil {
		err = s.End()
	}
	switch {
	case err != nil:
		return request, fmt.Errorf("malformed AdmissionReview: %w", err)
	case gotVersion != apiVersion || gotKind != kind:
		return nil, fmt.Errorf("got apiVersion %q and kind %q, want %q and %q", gotVersion, gotKind, apiVersion, kind)
	case request == nil:
		return nil, errors.New("AdmissionReview has no request")
	case request.UID == "":
		return nil, errors.New("AdmissionReview has no request.uid")
	}
	return request, nil
}

func parseRequest(s *jsonscan.Scanner, reader ObjectReader) (*Request, error) {
	var r Request
	err := s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "uid":
			r.UID, err = text(s)
		case "resource":
			err = r.parseResource(s)
		case "subResource":
			r.SubResource, err = text(s)
		case "operation":
			r.Operation, err = text(s)
		case "namespace":
			r.Namespace, err = text(s)
		case "name":
			r.Name, err = text(s)
		case "object":
			err = r.readObject(s, reader)
		case "oldObject":
			r.OldObject, err = object(s)
		}
		if err != nil {
			return fmt.Errorf("request.%s: %w", key, err)
		}
		return nil
	})
	return &r, err
}

func (r *Request) parseResource(s *jsonscan.Scanner) error {
	return s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "group":
			r.Group, err = text(s)
		case "version":
			r.Version, err = text(s)
		case "resource":
			r.Resource, err = text(s)
		}
		return err
	})
}

func (r *Request) validate() error {
	switch {
	case r.Operation != Create && r.Operation != Update:
		return fmt.Errorf("request.operation: got %q, want %s or %s; the webhook configuration's rules ask for too much", r.Operation, Create, Update)
	case r.Object == nil:
		return errors.New("request.object: got none, want an object")
	case r.Operation == Update && r.OldObject == nil:
		return errors.New("request.oldObject: got none, want an object")
	}
	return nil
}

// text reads a string. What stands in nearly all reviews is not copied.
func text(s *jsonscan.Scanner) (string, error) {
	value, err := s.String()
	for _, usual := range [...]string{apiVersion, kind, Create, "pods", "v1"} {
		if string(value) == usual {
			return usual, err
		}
	}
	return string(value), err
}

// readObject has the object read, and passes over what could not be.
func (r *Request) readObject(s *jsonscan.Scanner, reader ObjectReader) (err error) {
	if reader == nil || s.Kind() != jsonscan.Object {
		r.Object, err = object(s)
		return err
	}
	start, offset := s.Mark(), s.Offset()
	if r.Read, r.ReadErr = reader.ReadObject(s); r.ReadErr != nil {
		s.Return(start)
		err = s.Skip()
	}
	r.Object = s.Since(offset)
	return err
}

// object gives the bytes of an object, nil for a null.
func object(s *jsonscan.Scanner) ([]byte, error) {
	switch s.Kind() {
	case jsonscan.Null:
		return nil, s.Skip()
	case jsonscan.Object:
		return s.Raw()
	}
	return nil, fmt.Errorf("got %s, want object", s.Kind())
}

// statusReasons are the metav1.StatusReason that belongs to each code.
var statusReasons = map[int]string{
	http.StatusBadRequest:          "BadRequest",
	http.StatusForbidden:           "Forbidden",
	http.StatusInternalServerError: "InternalError",
}

// appendReview appends the AdmissionReview that answers the request with uid.
func appendReview(buf []byte, uid string, r *Response) []byte {
	buf = append(buf, `{"apiVersion":"`+apiVersion+`","kind":"`+kind+`","response":{"uid":`...)
	buf = jsonscan.AppendString(buf, uid)
	if r.Denial != nil {
		buf = append(buf, `,"allowed":false,"status":{"status":"Failure","message":`...)
		buf = jsonscan.AppendString(buf, r.Denial.Message)
		buf = append(buf, `,"reason":`...)
		buf = jsonscan.AppendString(buf, statusReasons[r.Denial.Code])
		buf = append(buf, `,"code":`...)
		buf = strconv.AppendInt(buf, int64(r.Denial.Code), 10)
		if r.Denial.Code >= http.StatusInternalServerError {
			// The apiserver hands it on as Retry-After, and client-go, so
			// kubectl and the controllers, then tries again by itself.
			buf = append(buf, `,"details":{"retryAfterSeconds":1}`...)
		}
		buf = append(buf, '}')
	} else {
		buf = append(buf, `,"allowed":true`...)
	}
	if r.Patch != nil && r.Denial == nil {
		buf = append(buf, `,"patchType":"JSONPatch","patch":"`...)
		buf = base64parts.Append(buf, r.Patch, r.PatchParts)
		buf = append(buf, '"')
	}
	for i, warning := range r.Warnings {
		if i == 0 {
			buf = append(buf, `,"warnings":[`...)
		} else {
			buf = append(buf, ',')
		}
		buf = jsonscan.AppendString(buf, warning)
	}
	if len(r.Warnings) > 0 {
		buf = append(buf, ']')
	}
	buf = append(buf, `,"auditAnnotations":{"reason":`...)
	buf = jsonscan.AppendString(buf, string(r.Reason))
	if len(r.Findings) > 0 {
		buf = append(buf, `,"findings":`...)
		buf = jsonscan.AppendString(buf, strings.Join(r.Findings, "; "))
	}
	return append(buf, `}}}`...)
}
