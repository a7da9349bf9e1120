// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// notReview is how a request that is not a review is counted.
var notReview = []record{{"", "error", "invalid_review"}}

func TestInvalidReviewsAreRejectedWithTheirMistake(t *testing.T) {
	t.Parallel()
	with := func(old, replacement string) string { return strings.Replace(review, old, replacement, 1) }
	long := review + strings.Repeat(" ", admission.MaxBodyBytes+1-len(review))
	tests := map[string]struct {
		method      string // POST where empty
		contentType string // application/json where empty
		query       string
		body        string
		chunked     bool
		code        int
		message     string
	}{
		"a GET":                              {method: http.MethodGet, code: 405, message: "got method GET, want POST"},
		"a PUT":                              {method: http.MethodPut, body: review, code: 405, message: "got method PUT, want POST"},
		"no content type":                    {contentType: "none", body: review, code: 415, message: `got Content-Type "", want application/json`},
		"YAML":                               {contentType: "application/yaml", body: review, code: 415, message: `got Content-Type "application/yaml", want application/json`},
		"protobuf":                           {contentType: "application/vnd.kubernetes.protobuf", body: review, code: 415, message: `want application/json`},
		"a content type that only begins so": {contentType: "application/json-patch+json", body: review, code: 415, message: `want application/json`},
		"a malformed content type":           {contentType: `application/json; charset`, body: review, code: 415, message: `want application/json`},
		"an empty body":                      {body: "", code: 400, message: "got an empty body, want an AdmissionReview"},
		"malformed JSON":                     {body: `{"apiVersion" "x"}`, code: 400, message: `malformed AdmissionReview: at byte 14: invalid character '"' after object name (expecting ':')`},
		"a truncated body":                   {body: review[:60], code: 400, message: "malformed AdmissionReview: unexpected end of JSON"},
		"two reviews":                        {body: review + review, code: 400, message: "got object, want the end"},
		"a list":                             {body: "[" + review + "]", code: 400, message: "got array, want an AdmissionReview object"},
		"a null":                             {body: "null", code: 400, message: "got null, want an AdmissionReview object"},
		"text":                               {body: "hello", code: 400, message: "got no value, want an AdmissionReview object"},
		"a body one byte too long":           {body: long, code: 413, message: "got a body of more than 7340032 bytes"},
		"a body of unknown length":           {body: review, chunked: true, code: 411, message: "got no Content-Length, want one"},
		"a body that is not UTF-8":           {body: with("team", "\xff"), code: 400, message: "got a body that is not valid UTF-8, want an AdmissionReview"},
		"v1beta1": {body: with("k8s.io/v1", "k8s.io/v1beta1"), code: 400,
			message: `got apiVersion "admission.k8s.io/v1beta1" and kind "AdmissionReview", want "admission.k8s.io/v1" and "AdmissionReview"`},
		"another kind":   {body: with(`"AdmissionReview"`, `"Pod"`), code: 400, message: `kind "Pod", want`},
		"no kind at all": {body: `{"request":{"uid":"u1"}}`, code: 400, message: `got apiVersion "" and kind "", want`},
		"a version that is a number": {body: with(`"admission.k8s.io/v1"`, "1"), code: 400,
			message: "malformed AdmissionReview: at byte 14: got number, want string"},
		"no request":                {body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, code: 400, message: "request.uid: got none, want one"},
		"a null request":            {body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`, code: 400, message: "request.uid: got none, want one"},
		"an answer":                 {body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u1","allowed":true}}`, code: 400, message: "request.uid: got none, want one"},
		"no uid":                    {body: with(`"uid":"u1",`, ""), code: 400, message: "request.uid: got none, want one"},
		"a uid that is too long":    {body: with(`"u1"`, `"`+strings.Repeat("u", 129)+`"`), code: 400, message: `request.uid: got "` + strings.Repeat("u", 64) + `...", want at most 128 bytes`},
		"a long content type":       {contentType: "x/" + strings.Repeat("y", 4000), body: review, code: 415, message: `got Content-Type "x/` + strings.Repeat("y", 62) + `...", want`},
		"a long version":            {body: with(`admission.k8s.io/v1`, strings.Repeat("v", 1<<20)), code: 400, message: `got apiVersion "` + strings.Repeat("v", 64) + `..." and kind`},
		"a long operation":          {body: with("CREATE", strings.Repeat("C", 1<<20)), code: 400, message: `request.operation: got "` + strings.Repeat("C", 64) + `...", want`},
		"a long wrong operation":    {body: with("CREATE", strings.Repeat("C", 500)), code: 400, message: `request.operation: got "` + strings.Repeat("C", 64) + `...", want`},
		"an unreadable object":      {body: with(`"object":{`, `"object":{"unreadable":1,`), code: 400, message: "malformed AdmissionReview: request.object: cannot be read"},
		"an unreadable old object":  {body: with(`"oldObject":null`, `"oldObject":{"unreadable":1}`), code: 400, message: "malformed AdmissionReview: request.oldObject: cannot be read"},
		"an empty uid":              {body: with(`"u1"`, `""`), code: 400, message: "request.uid: got none, want one"},
		"a uid that is a number":    {body: with(`"u1"`, "7"), code: 400, message: "request.uid: at byte"},
		"a resource that is a name": {body: with(`{"group":"","version":"v1","resource":"pods"}`, `"pods"`), code: 400, message: "got string, want object"},
		"no object":                 {body: with(`"object":{"kind":"Pod"},`, ""), code: 400, message: "request.object: got none, want an object"},
		"a null object":             {body: with(`{"kind":"Pod"}`, "null"), code: 400, message: "request.object: got none, want an object"},
		"an object that is a string": {body: with(`{"kind":"Pod"}`, `"Pod"`), code: 400,
			message: "malformed AdmissionReview: request.object: got string, want object"},
		"an old object that is a list": {body: with(`"oldObject":null`, `"oldObject":[]`), code: 400, message: "request.oldObject: got array, want object"},
		"an update without old object": {body: with("CREATE", "UPDATE"), code: 400, message: "request.oldObject: got none, want an object"},
		"a deletion":                   {body: with("CREATE", "DELETE"), code: 400, message: `request.operation: got "DELETE", want CREATE or UPDATE`},
		"a connection":                 {body: with("CREATE", "CONNECT"), code: 400, message: `request.operation: got "CONNECT", want CREATE or UPDATE`},
		"no operation":                 {body: with(`"operation":"CREATE",`, ""), code: 400, message: `request.operation: got "", want CREATE or UPDATE`},
		"a timeout that is no duration": {query: "?timeout=x", body: review, code: 400,
			message: `query parameter timeout: got "x", want a positive duration such as 10s`},
		"a timeout without a unit": {query: "?timeout=10", body: review, code: 400, message: `query parameter timeout: got "10"`},
		"a negative timeout":       {query: "?timeout=-1s", body: review, code: 400, message: `query parameter timeout: got "-1s"`},
		"a timeout of nothing":     {query: "?timeout=0s", body: review, code: 400, message: `query parameter timeout: got "0s"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(decide(func(context.Context, *admission.Request[object]) (admission.Response, error) {
				t.Error("a decision was made")
				return untroubled, nil
			}))
			request := newRequest(t, "/"+test.query, test.body)
			if test.method != "" {
				request.Method = test.method
			}
			if test.chunked {
				request.ContentLength = -1
			}
			switch test.contentType {
			case "":
			case "none":
				request.Header.Del("Content-Type")
			default:
				request.Header.Set("Content-Type", test.contentType)
			}
			response, message := f.send(t, request)
			if response.StatusCode != test.code {
				t.Errorf("got status %d, want %d", response.StatusCode, test.code)
			}
			if !strings.HasPrefix(message, "lanyard: ") || !strings.Contains(message, test.message) {
				t.Errorf("got message %q, want it to say %q", message, test.message)
			}
			if diff := cmp.Diff(notReview, f.records); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
			if !strings.Contains(f.log.String(), fmt.Sprintf(`"code"=%d`, test.code)) {
				t.Errorf("got log %q, want the status in it", f.log.String())
			}
		})
	}
}

func TestAReviewIsTakenHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	want := admission.Request[object]{
		Attributes: admission.Attributes{UID: "u1", Version: "v1", Resource: "pods", Operation: admission.Create, Namespace: "team", Name: "pod"},
		Object:     &object{`{"kind":"Pod"}`},
	}
	updated := want
	updated.Operation, updated.SubResource, updated.OldObject = admission.Update, "ephemeralcontainers", &object{`{ "a" : 1 }`}
	tests := map[string]struct {
		contentType, body string
		want              admission.Request[object]
	}{
		"as the apiserver writes it":      {"application/json", review, want},
		"with a charset":                  {"application/json; charset=utf-8", review, want},
		"with a content type in capitals": {"Application/JSON", review, want},
		"with white space around":         {"application/json", "\n\t " + review + " \r\n", want},
		"just as long as is allowed":      {"application/json", review + strings.Repeat(" ", admission.MaxBodyBytes-len(review)), want},
		"with escaped keys and values": {"application/json", strings.NewReplacer(
			`"request"`, `"\u0072equest"`, `"uid":"u1"`, `"\u0075id":"\u00751"`, `"object"`, `"obj\u0065ct"`, `"team"`, `"t\u0065am"`,
			`"CREATE"`, `"CR\u0045ATE"`, `"admission.k8s.io/v1"`, `"admission.k8s.io\/v1"`).Replace(review), want},
		"an update of a subresource": {"application/json", strings.NewReplacer(
			"CREATE", "UPDATE", `"oldObject":null`, `"oldObject": { "a" : 1 } `, `"name":"pod"`, `"name":"pod","subResource":"ephemeralcontainers"`,
		).Replace(review), updated},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got admission.Request[object]
			f := newFixture(decide(func(_ context.Context, request *admission.Request[object]) (admission.Response, error) {
				got = *request
				return untroubled, nil
			}))
			request := newRequest(t, "/", test.body)
			request.Header.Set("Content-Type", test.contentType)
			response, answer := f.send(t, request)
			if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("got %s %q %s, want 200 and application/json", response.Status, response.Header.Get("Content-Type"), answer)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(admission.Request[object]{})); diff != "" {
				t.Errorf("decided about (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResponsesDecodeAsAPITypes(t *testing.T) {
	t.Parallel()
	patchType := admissionv1.PatchTypeJSONPatch
	failure := func(code int32, status metav1.StatusReason, message string) *metav1.Status {
		result := &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: status, Message: message}
		if code >= http.StatusInternalServerError {
			result.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		}
		return result
	}
	nasty := "<&>\u2028 \"\\\x00\x1f\n\r\té😀/"
	patch := `[{"op":"add","path":"/a","value":"é>>>???~~~ÿÿÿ"}]`
	tests := map[string]struct {
		decision decide
		want     admissionv1.AdmissionResponse
		record   record
	}{
		"nothing to do": {allow(untroubled),
			admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": "no_identity"}},
			record{"pods", "allowed", "no_identity"}},
		"a patch": {allow(admission.Response{Reason: reason.Injected, Patch: patchOf(`"é>>>???~~~ÿÿÿ"`)}),
			admissionv1.AdmissionResponse{Allowed: true, PatchType: &patchType, Patch: []byte(patch), AuditAnnotations: map[string]string{"reason": "injected"}},
			record{"pods", "allowed", "injected"}},
		"warnings and findings": {allow(admission.Response{Reason: reason.MountPathTaken, Findings: []string{"one", "two \"2\""}, Warnings: []string{"w1", nasty}}),
			admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"lanyard: w1", "lanyard: " + nasty},
				AuditAnnotations: map[string]string{"reason": "mount_path_taken", "findings": `one; two "2"`}},
			record{"pods", "allowed", "mount_path_taken"}},
		"a user's mistake": {deny(reason.InvalidAnnotation, nasty),
			admissionv1.AdmissionResponse{Result: failure(400, metav1.StatusReasonBadRequest, "lanyard: invalid_annotation: "+nasty), AuditAnnotations: map[string]string{"reason": "invalid_annotation"}},
			record{"pods", "denied", "invalid_annotation"}},
		"what the policy forbids": {deny(reason.IdentityNotAllowed, "no"),
			admissionv1.AdmissionResponse{Result: failure(403, metav1.StatusReasonForbidden, "lanyard: identity_not_allowed: no"), AuditAnnotations: map[string]string{"reason": "identity_not_allowed"}},
			record{"pods", "denied", "identity_not_allowed"}},
		"a fault of the server": {deny(reason.LookupFailed, "later"),
			admissionv1.AdmissionResponse{Result: failure(500, metav1.StatusReasonInternalError, "lanyard: lookup_failed: later"), AuditAnnotations: map[string]string{"reason": "lookup_failed"}},
			record{"pods", "error", "lookup_failed"}},
		"a denial gets no patch": {func(context.Context, *admission.Request[object]) (admission.Response, error) {
			return admission.Response{Patch: patchOf("1"), Warnings: []string{"w"}}, &reason.Error{Reason: reason.LookupFailed, Err: errors.New("later")}
		},
			admissionv1.AdmissionResponse{Result: failure(500, metav1.StatusReasonInternalError, "lanyard: lookup_failed: later"), AuditAnnotations: map[string]string{"reason": "lookup_failed"}},
			record{"pods", "error", "lookup_failed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(test.decision)
			response, answer := f.post(t, review)
			if response.StatusCode != http.StatusOK || response.ContentLength != int64(len(answer)) {
				t.Fatalf("got %s and Content-Length %d for %d bytes: %s", response.Status, response.ContentLength, len(answer), answer)
			}
			test.want.UID = "u1"
			want := &admissionv1.AdmissionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Response: &test.want,
			}
			if diff := cmp.Diff(want, decode(t, answer)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]record{test.record}, f.records); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
		})
	}
}

// If nothing is known about the object, the API server applies the failure policy.
func TestAFaultIsNoDenialButA503WithAStatus(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body     string
		decision decide
		reason   string
		message  string
	}{
		"a fault has its reason": {review, fault(reason.LookupFailed, "connection refused"), "lookup_failed", "lanyard: lookup_failed: connection refused"},
		"an error without a reason is internal": {review, func(context.Context, *admission.Request[object]) (admission.Response, error) {
			return admission.Response{Patch: patchOf("1")}, errors.New("unexpected")
		}, "internal_error", "lanyard: internal_error: unexpected"},
		"a panic while the object is read is internal": {strings.Replace(review, `"object":{`, `"object":{"panics":1,`, 1), allow(untroubled),
			"internal_error", "lanyard: internal_error: the webhook failed on this object; its log has the details"},
		"a message is cut": {review, fault(reason.LookupFailed, strings.Repeat("x", 1<<20)), "lookup_failed", "lanyard: lookup_failed: " + strings.Repeat("x", 16<<10-len("lookup_failed: ")) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(test.decision)
			response, answer := f.post(t, test.body)
			if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != "" {
				t.Errorf("got %s and Retry-After %q, want 503 and none: the API server must not wait", response.Status, response.Header.Get("Retry-After"))
			}
			var got metav1.Status
			if err := json.Unmarshal([]byte(answer), &got); err != nil {
				t.Fatalf("answer %s: %v", answer, err)
			}
			want := metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
				Status:   metav1.StatusFailure, Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: test.message,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if len(f.records) != 1 || f.records[0].Result != "error" || f.records[0].Reason != test.reason {
				t.Errorf("recorded %v, want an error with reason %s", f.records, test.reason)
			}
			if log := f.log.String(); !strings.Contains(log, test.reason) || len(log) > 64<<10 {
				t.Errorf("got log %.200q of %d bytes, want the reason", log, len(log))
			}
		})
	}
}

func TestASubresourceIsCountedAsOne(t *testing.T) {
	t.Parallel()
	f := newFixture(allow(untroubled))
	f.post(t, strings.Replace(review, `"name":"pod"`, `"subResource":"ephemeralcontainers"`, 1))
	if diff := cmp.Diff([]record{{"pods/ephemeralcontainers", "allowed", "no_identity"}}, f.records); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestTheUIDIsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ written, want string }{
		"quotes and backslashes":    {`\"\\\/`, `"\/`},
		"control characters":        {`\u0000\b\f\n\r\t\u001f`, "\x00\b\f\n\r\t\x1f"},
		"characters beyond ASCII":   {`é\u00e9😀\ud83d\ude00`, "éé😀😀"},
		"half of a surrogate":       {`\ud83d`, "\ufffd"},
		"what is special in HTML":   {`<&>`, "<&>"},
		"JavaScript's line breaks":  {"\u2028\u2029", "\u2028\u2029"},
		"what would end the object": {`\"},\"allowed\":true`, `"},"allowed":true`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(deny(reason.InvalidAnnotation, "no"))
			_, answer := f.post(t, strings.Replace(review, "u1", test.written, 1))
			response := decode(t, answer).Response
			if string(response.UID) != test.want || response.Allowed {
				t.Errorf("got UID %q and allowed %v, want %q and a denial", response.UID, response.Allowed, test.want)
			}
		})
	}
}

// secret is a part of everything in a request that must not be logged.
const secret = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0.s3cr3t"

// secretive is a pod with the secret in an environment variable, in an annotation and as a
// key.
const secretive = `{"kind":"Pod","metadata":{"annotations":{"example.com/token":"` + secret + `"}},` +
	`"spec":{"containers":[{"name":"main","env":[{"name":"PASSWORD","value":"` + secret + `"}],"` + secret + `":1}]}}`

func TestAPanicIsAFaultAndShowsNothingOfTheObject(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{
		"an error":                 errors.New("cannot handle " + secretive),
		"a text":                   "cannot handle " + secretive,
		"the object":               []byte(secretive),
		"a fault of the runtime's": nil,
		"an aborted handler":       http.ErrAbortHandler,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(decide(func(_ context.Context, request *admission.Request[object]) (admission.Response, error) {
				if value == nil {
					return admission.Response{Reason: reason.Reason(request.UID[100:])}, nil
				}
				panic(value)
			}))
			response, answer := f.post(t, strings.Replace(review, `{"kind":"Pod"}`, secretive, 1))
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(answer, "internal_error") {
				t.Errorf("got %s %s, want 503 and internal_error", response.Status, answer)
			}
			if diff := cmp.Diff([]record{{"pods", "error", "internal_error"}}, f.records); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
			log := f.log.String()
			if !strings.Contains(log, "handler_test.go") {
				t.Errorf("got log %q, want the stack in it", log)
			}
			for _, text := range []string{log, answer} {
				if strings.Contains(text, secret) || strings.Contains(text, "PASSWORD") {
					t.Errorf("the object is shown: %s", text)
				}
			}
		})
	}
}

func TestTheLogDoesNotContainTheObject(t *testing.T) {
	t.Parallel()
	full := strings.Replace(review, `{"kind":"Pod"}`, secretive, 1)
	tests := map[string]struct {
		body     string
		decision decide
		want     string // in the log
	}{
		"of an untroubled answer":                 {full, allow(untroubled), `"reason"="no_identity"`},
		"of an injection":                         {full, allow(admission.Response{Reason: reason.Injected, Patch: patchOf(`"` + secret + `"`)}), `"patchBytes"=73`},
		"of a warning":                            {full, allow(admission.Response{Reason: reason.Injected, Warnings: []string{"careful"}}), `"warnings"="careful"`},
		"of a denial":                             {full, deny(reason.LookupFailed, "later"), `"message"="later"`},
		"of a truncated review":                   {full[:strings.LastIndex(full, secret)+30], allow(untroubled), "unexpected end of JSON"},
		"of a review with an error in the secret": {strings.ReplaceAll(full, "s3cr3t", `s3cr3t\q`), allow(untroubled), "malformed"},
		"of a review with another operation":      {strings.Replace(full, "CREATE", "DELETE", 1), allow(untroubled), "DELETE"},
		"of a pod where a review should be":       {secretive, allow(untroubled), "got apiVersion"},
		"of what is no JSON":                      {secret, allow(untroubled), "want an AdmissionReview object"},
		"of an object that is a string":           {strings.Replace(review, `{"kind":"Pod"}`, `"`+secret+`"`, 1), allow(untroubled), "got string, want object"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(test.decision)
			f.post(t, test.body)
			log := f.log.String()
			if !strings.Contains(log, test.want) {
				t.Errorf("got log %q, want %q in it", log, test.want)
			}
			for _, part := range append(strings.Split(secret, "."), "PASSWORD") {
				if strings.Contains(log, part) {
					t.Errorf("the log shows %q: %s", part, log)
				}
			}
		})
	}
}

func TestTheDeciderHasATenthLessTimeThanTheAPIServerWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		query string
		want  time.Duration
	}{
		"by default":                      {"", 9 * time.Second},
		"with an empty timeout":           {"?timeout=", 9 * time.Second},
		"with a timeout":                  {"?timeout=5s", 4500 * time.Millisecond},
		"with the longest timeout":        {"?timeout=30s", 27 * time.Second},
		"with a timeout that is too long": {"?timeout=5m", 27 * time.Second},
		"with the shortest timeout":       {"?timeout=1s", 900 * time.Millisecond},
		"with a timeout that is short":    {"?timeout=8ms", 900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(decide(func(ctx context.Context, _ *admission.Request[object]) (admission.Response, error) {
					<-ctx.Done()
					return admission.Response{}, &reason.Error{Reason: reason.LookupFailed, Err: ctx.Err()}
				}))
				start := time.Now()
				f.send(t, newRequest(t, "/"+test.query, review))
				if got := time.Since(start); got != test.want {
					t.Errorf("the decider had %s, want %s", got, test.want)
				}
				if diff := cmp.Diff([]time.Duration{test.want}, f.durations); diff != "" {
					t.Errorf("recorded (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// unwritable is a connection that is gone.
type unwritable struct{ *httptest.ResponseRecorder }

func (unwritable) Write([]byte) (int, error) { return 0, errors.New("connection is gone") }

func TestAnAnswerThatCannotBeSentIsLogged(t *testing.T) {
	t.Parallel()
	f := newFixture(allow(untroubled))
	f.handler.ServeHTTP(unwritable{httptest.NewRecorder()}, newRequest(t, "/", review))
	if log := f.log.String(); !strings.Contains(log, "connection is gone") {
		t.Errorf("got log %q, want the error", log)
	}
	if diff := cmp.Diff([]record{{"pods", "allowed", "no_identity"}}, f.records); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// FuzzHandler checks that every request gets a response: a review or an error.
func FuzzHandler(f *testing.F) {
	for _, body := range []string{
		review, review[:40], "", "{}", "null", "[]", "\xff", `{"request":{"object":{}}}`,
		strings.Replace(review, "CREATE", "UPDATE", 1), strings.Replace(review, "u1", `\ud800\u0000`, 1), strings.Repeat("[", 20000),
	} {
		f.Add([]byte(body), "application/json", "timeout=10s")
	}
	f.Add([]byte(review), "application/json;;", "timeout=%zz")
	f.Fuzz(func(t *testing.T, body []byte, contentType, query string) {
		var uid string
		fixture := newFixture(decide(func(_ context.Context, request *admission.Request[object]) (admission.Response, error) {
			uid = request.UID
			return admission.Response{Reason: reason.Injected, Patch: patchOf(request.Object.JSON), Findings: []string{request.Name}, Warnings: []string{request.Namespace, request.Resource}}, nil
		}))
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(string(body)))
		request.URL.RawQuery = query
		request.Header.Set("Content-Type", contentType)
		recorder := httptest.NewRecorder()
		fixture.handler.ServeHTTP(recorder, request)
		switch answer := recorder.Body.String(); {
		case recorder.Code == http.StatusOK:
			if got := string(decode(t, answer).Response.UID); got != strings.ToValidUTF8(uid, "\ufffd") {
				t.Errorf("got UID %q, want %q", got, uid)
			}
		case recorder.Code < 400 || recorder.Code > 499 || !strings.HasPrefix(answer, "lanyard: ") || len(answer) > 20<<10:
			t.Errorf("got %d %q, want a 4xx with a message", recorder.Code, answer)
		}
		if len(fixture.records) != 1 {
			t.Errorf("got %d records, want one", len(fixture.records))
		}
	})
}

func TestComplaintsAreLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(allow(untroubled))
		bad := func() {
			f.send(t, newRequest(t, "/", "{"))
		}
		for range 1000 {
			bad()
		}
		if got := strings.Count(f.log.String(), "Rejected"); got != 10 {
			t.Errorf("got %d lines for 1,000 bad requests at once, want 10", got)
		}
		time.Sleep(time.Second)
		bad()
		bad()
		if log := f.log.String(); strings.Count(log, "Rejected") != 11 || !strings.Contains(log, `"linesLeftOutBefore"=990`) {
			t.Errorf("got log %.300q, want one line after a second, with the number of those left out", log)
		}
		if len(f.records) != 1002 {
			t.Errorf("got %d requests counted, want all 1,002", len(f.records))
		}
	})
}
