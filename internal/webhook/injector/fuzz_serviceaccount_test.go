// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// post sends a body to a handler. It returns the AdmissionReview of the response,
// or nil if the body was rejected with an HTTP status.
func post(t *testing.T, handler http.Handler, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusOK {
		// The handler turns a panic into this reason.
		if strings.Contains(recorder.Body.String(), string(reason.InternalError)) {
			t.Errorf("got %s", recorder.Body)
		}
		if recorder.Code < 400 || recorder.Code > 599 || !strings.Contains(recorder.Body.String(), "lanyard: ") {
			t.Errorf("got %d %q, want a 4xx or 5xx with a message", recorder.Code, recorder.Body)
		}
		return nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("got %s and error %v, want an AdmissionReview with a response", recorder.Body, err)
	}
	if got := review.Response.AuditAnnotations["reason"]; got == string(reason.InternalError) || got == "" {
		t.Errorf("got reason %q: %s", got, recorder.Body)
	}
	return review.Response
}

// FuzzServiceAccount checks that every review of a ServiceAccount gets a response, that the
// ServiceAccount then has the label if and only if it asks for an identity, and that it is
// valid if its annotations are.
func FuzzServiceAccount(f *testing.F) {
	valid := []string{
		withRole, named, withRole + "," + labeled, named + "," + labeled, withRole + `,"labels":null`, withRole + "," + plainText,
		named + `,"annotations":{"lanyard.dev/audience":""},"labels":{}`, named + `,"annotations":{"lanyard.dev/x":"\u0000\"","a":"b"}`,
		named + `,"annotations":{` + roleKey + `,"lanyard.dev/aws-region":"eu-central-1","a":"b"}`,
		named + `,"annotations":{"\u006canyard.dev/audience":"a"}`, named + `,"labels":{"lanyard.dev/identity":"x"}`, named + "," + required, withRole + "," + required,
	}
	for _, metadata := range valid {
		f.Add(write(account(metadata), nil).body())
		f.Add(write(account(metadata), account(withRole)).body())
	}
	f.Add(write([]byte(`{"metadata":{"annotations":[]}}`), nil).body())
	f.Add(create([]byte(plainPod)).body())
	f.Add([]byte(`{"request":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		pods, _ := newPods(t, nil)
		pods.Namespaces = withoutPolicy{}
		mutator := admission.NewHandler(&injector.ServiceAccountMutator{Settings: pods.Settings, Invalidator: &invalidated{}}, admission.NewBudget(), uncounted{}, logr.Discard())
		validator := admission.NewHandler(&injector.ServiceAccountValidator{Config: pods.Config, Invalidator: &invalidated{}}, admission.NewBudget(), uncounted{}, logr.Discard())
		mutated, validated := post(t, mutator, body), post(t, validator, body)
		if (mutated == nil) != (validated == nil) {
			t.Fatalf("only one of the two rejected %q", body)
		}
		if mutated == nil || duplicates(body) {
			return
		}
		var review struct {
			Request *admissionRequest `json:"request"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
			return // fields that Lanyard does not read, such as options, have another type
		}
		for _, response := range []*admissionv1.AdmissionResponse{mutated, validated} {
			if got, want := string(response.UID), strings.ToValidUTF8(review.Request.UID, "\ufffd"); got != want {
				t.Errorf("got UID %q, want %q", got, want)
			}
		}
		if len(validated.Patch) > 0 {
			t.Errorf("the validating webhook sent the patch %s", validated.Patch)
		}
		var before corev1.ServiceAccount
		if err := kjson.UnmarshalCaseSensitivePreserveInts(review.Request.Object, &before); err != nil || !mutated.Allowed {
			return // as above
		}
		holdsLabel(t, pods.Settings, before.Labels, review.Request.Object, mutated.Patch)
		mapped := post(t, admission.NewHandler(mapper(t), admission.NewBudget(), uncounted{}, logr.Discard()), body)
		onlyAdds(t, &before, review.Request.Object, mapped.Patch)
		if _, errs := pods.ParseServiceAccount(before.Namespace, before.Name, before.Annotations); review.Request.Operation == admission.Create && validated.Allowed != (len(errs) == 0) {
			t.Errorf("got allowed %t: %v; errors of the annotations %v", validated.Allowed, validated.Result, errs)
		}
	})
}

// withoutPolicy has every namespace.
type withoutPolicy struct{}

func (withoutPolicy) Get(context.Context, string, string) (annotations.Object, error) {
	return annotations.Object{}, nil
}

// admissionRequest contains the fields of an AdmissionRequest that the test reads.
type admissionRequest struct {
	UID       string          `json:"uid"`
	Operation string          `json:"operation"`
	Object    json.RawMessage `json:"object"`
}

// onlyAdds checks that mappings only add annotations, and only to a ServiceAccount without
// annotations of the same provider.
func onlyAdds(t *testing.T, before *corev1.ServiceAccount, object, patch []byte) {
	t.Helper()
	result := apply(t, object, patch)
	var after corev1.ServiceAccount
	if err := kjson.UnmarshalCaseSensitivePreserveInts(result, &after); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	for key, value := range before.Annotations {
		if got, found := after.Annotations[key]; !found || got != value {
			t.Errorf("annotation %s was %q and is %q", key, value, got)
		}
	}
	if len(after.Annotations) == len(before.Annotations) {
		return
	}
	for key := range before.Annotations {
		if strings.HasPrefix(key, annotations.Prefix+"aws-") || key == annotations.Audience {
			t.Errorf("annotations were added beside %s: %s", key, result)
		}
	}
	if !annotations.IsGuarded(after.Labels[annotations.IdentityLabel]) {
		t.Errorf("the mapped ServiceAccount has no label: %s", result)
	}
}

// holdsLabel checks that the patch applies, and that it changes only the label.
func holdsLabel(t *testing.T, s *annotations.Settings, before map[string]string, object, patch []byte) {
	t.Helper()
	result := apply(t, object, patch)
	var after corev1.ServiceAccount
	if err := kjson.UnmarshalCaseSensitivePreserveInts(result, &after); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	value, found := after.Labels[annotations.IdentityLabel]
	if before[annotations.IdentityLabel] == annotations.IdentityRequired {
		if value != annotations.IdentityRequired {
			t.Errorf("got label %q, want the user's value in %s", value, result)
		}
	} else if asks := s.AskForIdentity(after.Annotations); asks != found || asks && value != annotations.IdentityEnabled {
		t.Errorf("got label %q (%t), and asks for an identity %t, in %s", value, found, asks, result)
	}
	want, got := unmarshal(t, object), unmarshal(t, result)
	for _, object := range []map[string]any{want, got} {
		metadata, _ := object["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		delete(labels, annotations.IdentityLabel)
		if len(labels) == 0 {
			delete(metadata, "labels")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("more than the label changed (-before +after):\n%s", diff)
	}
}
