// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

const (
	role     = "arn:aws:iam::111122223333:role/app"
	clientID = "11111111-2222-3333-4444-555555555555"
	tenantID = "99999999-8888-7777-6666-555555555555"
	pool     = "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/cluster"
	email    = "lanyard-app@my-project.iam.gserviceaccount.com"
)

// reservedAudience belongs to the API server.
const reservedAudience = "https://kubernetes.default.svc"

// threeClouds asks for the identities of all three clouds.
func threeClouds() map[string]string {
	return map[string]string{
		"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-region": "eu-central-1",
		"lanyard.dev/azure-client-id": clientID, "lanyard.dev/azure-tenant-id": tenantID,
		"lanyard.dev/gcp-workload-identity-provider": pool, "lanyard.dev/gcp-service-account": email,
	}
}

// objects contains a cluster's annotations by namespace/name.
type objects map[string]map[string]string

func (o objects) Get(_ context.Context, namespace, name string) (annotations.Object, error) {
	values, found := o[namespace+"/"+name]
	if !found {
		name = name[:min(len(name), 253)] // as the cache does
		err := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, name)
		return annotations.Object{}, fmt.Errorf("read serviceaccount %s/%s: %w", namespace, name, err)
	}
	return annotations.Object{Namespace: namespace, Name: name, Annotations: values}, nil
}

// broken is a Getter that always fails.
type broken struct{ err error }

func (b broken) Get(context.Context, string, string) (annotations.Object, error) {
	return annotations.Object{}, b.err
}

// counted records the injections.
type counted []string

func (c *counted) RecordInjection(provider string) { *c = append(*c, provider) }
func (c *counted) RecordFinding(string)            {}

// request is an AdmissionRequest with the JSON of its objects.
type request struct {
	admission.Attributes
	Object, OldObject []byte
}

// body returns the AdmissionReview of the request.
func (r *request) body() []byte {
	old := r.OldObject
	if old == nil {
		old = []byte("null")
	}
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1",`+
		`"resource":{"group":%q,"version":%q,"resource":%q},"subResource":%q,"name":%q,"namespace":%q,"operation":%q,"object":%s,"oldObject":%s}}`,
		r.Group, r.Version, r.Resource, r.SubResource, r.Name, r.Namespace, r.Operation, r.Object, old)
}

// decision is the decision as sent to the API server.
type decision struct {
	Reason             reason.Reason
	Patch              []byte
	Code               int    // of a denial, else 0
	Message            string // of a denial
	Findings, Warnings []string
}

// ask sends a request to a decider as the API server does.
func ask[T any](tb testing.TB, d admission.Decider[T], r *request) decision {
	tb.Helper()
	return askHandler(tb, admission.NewHandler(d, admission.NewBudget(), uncounted{}, logr.Discard()), r.body())
}

func askHandler(tb testing.TB, handler http.Handler, body []byte) decision {
	tb.Helper()
	post := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/", bytes.NewReader(body))
	post.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, post)
	if answer.Code == http.StatusServiceUnavailable {
		var status metav1.Status
		if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
			tb.Fatalf("%s: %v", answer.Body, err)
		}
		why, _, _ := strings.Cut(strings.TrimPrefix(status.Message, "lanyard: "), ":")
		return decision{Reason: reason.Reason(why), Code: answer.Code, Message: status.Message}
	}
	if answer.Code != http.StatusOK {
		return decision{Reason: reason.InvalidReview, Code: answer.Code, Message: answer.Body.String()}
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil {
		tb.Fatalf("%s: %v", answer.Body, err)
	}
	response := review.Response
	got := decision{Reason: reason.Reason(response.AuditAnnotations["reason"]), Patch: response.Patch, Warnings: response.Warnings}
	if findings := response.AuditAnnotations["findings"]; findings != "" {
		got.Findings = strings.Split(findings, "; ")
	}
	if !response.Allowed {
		got.Code, got.Message = int(response.Result.Code), response.Result.Message
	}
	return got
}

// newPods returns a PodMutator for a cluster with the ServiceAccount team/app, and
// a recorder of what it injects.
func newPods(tb testing.TB, account map[string]string) (*injector.PodMutator, *counted) {
	tb.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		tb.Fatal(err)
	}
	s.TokenMountPath, s.TokenExpirationSeconds = annotations.DefaultTokenMountPath, annotations.DefaultTokenExpirationSeconds
	s.ReservedAudiences = []string{reservedAudience}
	recorder := &counted{}
	return &injector.PodMutator{
		Config: injector.Config{
			Settings:        s,
			ServiceAccounts: objects{"team/app": account, "team/default": nil},
			Namespaces:      objects{"/team": nil},
		},
		Recorder: recorder,
	}, recorder
}

func create(pod []byte) *request {
	return &request{Attributes: admission.Attributes{Version: "v1", Resource: "pods", Operation: admission.Create, Namespace: "team"}, Object: pod}
}

func debug(pod, old []byte) *request {
	return &request{Attributes: admission.Attributes{
		Version: "v1", Resource: "pods", SubResource: "ephemeralcontainers", Operation: admission.Update, Namespace: "team",
	}, Object: pod, OldObject: old}
}

// apply applies the patch to the pod, as the API server does.
func apply(tb testing.TB, pod, patch []byte) []byte {
	tb.Helper()
	if patch == nil {
		return pod
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		tb.Fatalf("patch %s: %v", patch, err)
	}
	patched, err := decoded.Apply(pod)
	if err != nil {
		tb.Fatalf("apply %s to %s: %v", patch, pod, err)
	}
	return patched
}

func marshal(tb testing.TB, v any) []byte {
	tb.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func unmarshal(tb testing.TB, text []byte) map[string]any {
	tb.Helper()
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return v
}
