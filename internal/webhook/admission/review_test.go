// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	kubejson "k8s.io/apimachinery/pkg/util/json"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// FuzzParseReview compares the parser with the API's types: it reads accepted input as they
// do, and rejects input that they cannot decode into a request.
func FuzzParseReview(f *testing.F) {
	for _, body := range []string{
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":{"group":"g","version":"v1","resource":"pods"},"operation":"CREATE","object":{"a":1}}}`,
		`{"request":{"object": {"a" : [1, 2e9, "\u2028"]} ,"oldObject":{},"operation":"UPDATE","uid":"\u0041\ud83d\ude00","subResource":"s","name":"n","namespace":"ns"},"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":null,"subResource":null,"name":null,"operation":"CREATE","object":{},"oldObject":null}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","UID":"other","Object":{"b":1},"operation":"CREATE","object":{"a":1}}}`,
		"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":\"\xff\",\"operation\":\"CREATE\",\"object\":{}}}",
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE","object":{}}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, `{}`, `null`, `[]`, `{"request":7}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		handler := NewHandler(raw{}, NewBudget(), nil, logr.Discard())
		m := memory[string]{body: body}
		err := handler.parse(&m)
		if err == nil {
			err = m.request.validate()
		}
		got := m.request
		if !json.Valid(body) || !utf8.Valid(body) {
			if err == nil {
				t.Errorf("malformed JSON or UTF-8 was accepted")
			}
			return
		}
		var review admissionv1.AdmissionReview
		// This is case-sensitive, as in the API server. It fails if a field that
		// Lanyard does not use has the wrong type; nothing is compared then.
		if kubejson.Unmarshal(body, &review) != nil || repeats(body) {
			return
		}
		if want := wanted(&review); want == nil {
			if err == nil {
				t.Errorf("got %+v, want an error", got)
			}
		} else if diff := cmp.Diff(*want, got, cmpopts.IgnoreUnexported(Request[string]{})); err != nil || diff != "" {
			t.Errorf("got error %v, (-want +got):\n%s", err, diff)
		}
	})
}

// raw is a Decider whose objects are their JSON.
type raw struct{}

func (raw) Read(s *rawjson.Scanner, into *string) error {
	text, err := s.Raw()
	*into = string(text)
	return err
}

func (raw) Decide(context.Context, *Request[string]) (Response, error) { return Response{}, nil }

// wanted returns the request of a review, or nil if it must be rejected.
func wanted(review *admissionv1.AdmissionReview) *Request[string] {
	r := review.Request
	if review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" || r == nil || r.UID == "" || len(r.UID) > maxUIDBytes {
		return nil
	}
	isObject := func(raw []byte) bool { return bytes.HasPrefix(raw, []byte("{")) }
	switch {
	case !isObject(r.Object.Raw), r.OldObject.Raw != nil && !isObject(r.OldObject.Raw):
		return nil
	case r.Operation == admissionv1.Create, r.Operation == admissionv1.Update && r.OldObject.Raw != nil:
		wanted := Request[string]{Attributes: Attributes{
			UID: string(r.UID), Group: cut(r.Resource.Group), Version: cut(r.Resource.Version), Resource: cut(r.Resource.Resource),
			SubResource: cut(r.SubResource), Operation: string(r.Operation), Namespace: cut(r.Namespace), Name: cut(r.Name),
		}, Object: new(string(r.Object.Raw))}
		if r.OldObject.Raw != nil {
			wanted.OldObject = new(string(r.OldObject.Raw))
		}
		return &wanted
	}
	return nil
}

// cut cuts a name as a request does.
func cut(name string) string { return texts.Cut(name, 253) }

// repeats reports whether an object in text has a member twice, which JSON leaves
// undefined and the API server never sends.
func repeats(text []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(text))
	return repeatsNext(decoder)
}

func repeatsNext(decoder *json.Decoder) bool {
	token, err := decoder.Token()
	if err != nil {
		return true
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return false
	}
	seen := map[string]bool{}
	for decoder.More() {
		if delim == '{' {
			key, err := decoder.Token()
			name, ok := key.(string)
			if err != nil || !ok || seen[name] {
				return true
			}
			seen[name] = true
		}
		if repeatsNext(decoder) {
			return true
		}
	}
	_, err = decoder.Token()
	return err != nil
}
