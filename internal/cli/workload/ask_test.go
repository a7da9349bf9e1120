// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const role = "arn:aws:iam::111122223333:role/cart"

func newSettings(t *testing.T) *annotations.Settings {
	t.Helper()
	s, err := options.New().Settings(annotations.CommonAPIServerAudiences())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// server is a fake API server. Its zero value allows everything and stores pods unchanged.
type server struct {
	forbidden map[string]bool // namespaces in which the user may not create pods
	reviewErr error
	podErr    error
	delay     time.Duration

	reviews, pods atomic.Int32

	mu         sync.Mutex
	busy, most int // requests at the same time
}

// change changes the number of requests that are being served.
func (s *server) change(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += by
	s.most = max(s.most, s.busy)
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	s.change(1)
	defer s.change(-1)
	time.Sleep(s.delay)
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(request.URL.Path, "/pods") {
		s.pods.Add(1)
		if request.URL.Query().Get("dryRun") != "All" {
			return nil, errors.New("the request is not a dry run")
		}
		return respond(request, body, s.podErr)
	}
	s.reviews.Add(1)
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, err
	}
	review.Status.Allowed = !s.forbidden[review.Spec.ResourceAttributes.Namespace]
	body, err = json.Marshal(review)
	return respond(request, body, errors.Join(s.reviewErr, err))
}

func respond(request *http.Request, body []byte, err error) (*http.Response, error) {
	code := http.StatusCreated
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		value := status.Status()
		code = int(value.Code)
		value.Kind, value.APIVersion = "Status", "v1"
		body, err = json.Marshal(value)
	}
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if code == http.StatusInternalServerError {
		header.Set("Retry-After", "1") // as for the retryable denials of Lanyard
	}
	return &http.Response{StatusCode: code, Request: request, Body: io.NopCloser(bytes.NewReader(body)), Header: header}, nil
}

func newAsker(t *testing.T, s *server, o workload.Options) *workload.Asker {
	t.Helper()
	config := &rest.Config{Host: "http://cluster.invalid", Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	asker, err := workload.NewAsker(config, newSettings(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return asker
}

func serviceAccount(values map[string]string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: "cart", Namespace: "shop", Annotations: values, Labels: map[string]string{"lanyard.dev/identity": "enabled"}}
}

func newPod() *unstructured.Unstructured { return probe.Pod("cart") }

// kind returns the field of an answer that is set, with its details.
func kind(a *workload.Answer) string {
	text := ""
	switch {
	case a.Denial != nil:
		text = "denied by " + string(a.Denial.By) + " " + string(a.Denial.Reason) + ": " + a.Denial.Message
	case a.Err != nil:
		text = "error: " + a.Err.Error()
	default:
		text = "pod: " + a.Pod.GetAnnotations()["lanyard.dev/injected"]
	}
	if a.Local != "" {
		text = "local " + text
	}
	if a.Missing != "" {
		text += "; you may not " + a.Missing
	}
	return text
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "alice" cannot create resource "pods"`))
	status := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: "Failure", Code: code, Reason: reason, Message: message}}
	}
	failed := func(webhook string) error {
		return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: no endpoints", webhook))
	}
	for name, test := range map[string]struct {
		server *server
		want   string // the beginning
	}{
		"a pod": {&server{}, "pod: "},
		"a user who may not create pods": {
			&server{forbidden: map[string]bool{"shop": true}, podErr: forbidden},
			"local pod: aws; you may not create pods in the namespace shop",
		},
		"a quota": {
			&server{podErr: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("exceeded quota"))},
			`denied by other : pods "x" is forbidden: exceeded quota`,
		},
		"a code 403 of a user whose rights are not known": {
			&server{podErr: forbidden, reviewErr: status(503, metav1.StatusReasonServiceUnavailable, "no authorizer")},
			"error: pods is forbidden: User \"alice\" cannot create resource \"pods\"\nask whether you may create pods: no authorizer",
		},
		"a pod for a user whose rights are not known": {&server{reviewErr: status(503, metav1.StatusReasonServiceUnavailable, "no authorizer")}, "pod: "},
		"a denial by Lanyard": {
			&server{podErr: status(403, metav1.StatusReasonForbidden, `admission webhook "pods.lanyard.dev" denied the request: lanyard: identity_not_allowed: no`)},
			"denied by lanyard identity_not_allowed: no",
		},
		"a denial by Lanyard with code 500": {
			&server{podErr: status(500, metav1.StatusReasonInternalError, `admission webhook "pods.lanyard.dev" denied the request: lanyard: lookup_failed: no`)},
			"denied by lanyard lookup_failed: no",
		},
		"a word that is no reason": {
			&server{podErr: status(400, metav1.StatusReasonBadRequest, `admission webhook "x" denied the request: lanyard: frobnicated: x`)},
			`denied by other : admission webhook "x" denied`,
		},
		"a denial by the guard": {
			&server{podErr: status(403, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'lanyard-guard-pods' denied request: lanyard: ServiceAccount shop/cart needs credentials (label lanyard.dev/identity=enabled), but")},
			"denied by guard : ValidatingAdmissionPolicy",
		},
		"a denial by the guard of a pod that insists": {
			&server{podErr: status(403, metav1.StatusReasonForbidden, `ValidatingAdmissionPolicy 'x' denied request: lanyard: this pod of ServiceAccount shop/cart needs credentials (lanyard.dev/inject: "true"), but`)},
			"denied by guard : ValidatingAdmissionPolicy",
		},
		"a denial by the guard of a pod with the label of an injected pod": {
			&server{podErr: status(403, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'x' denied request: lanyard: this pod of ServiceAccount shop/cart needs credentials (label lanyard.dev/identity=injected), but")},
			"denied by guard : ValidatingAdmissionPolicy",
		},
		"Lanyard cannot be called":         {&server{podErr: failed("probe.lanyard.dev")}, `denied by no-call : Internal error occurred: failed calling webhook "probe.lanyard.dev": no endpoints`},
		"another webhook cannot be called": {&server{podErr: failed("kyverno")}, `denied by failed-call : Internal error occurred: failed calling webhook "kyverno": no endpoints`},
		"a pod that is not valid":          {&server{podErr: status(422, metav1.StatusReasonInvalid, "spec.containers: Required")}, "denied by other : spec.containers"},
		"another internal error":           {&server{podErr: apierrors.NewInternalError(errors.New("etcd"))}, "denied by other : Internal error occurred: etcd"},
		"a credential that has expired":    {&server{podErr: status(401, metav1.StatusReasonUnauthorized, "Unauthorized")}, "error: Unauthorized"},
		"a namespace that does not exist":  {&server{podErr: status(404, metav1.StatusReasonNotFound, `namespaces "shop" not found`)}, "error: namespaces"},
		"an API server that does not work": {&server{podErr: errors.New("connection refused"), reviewErr: errors.New("connection refused")}, "error: Post \"http://cluster.invalid/api/v1/namespaces/shop/pods?dryRun=All\": connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asker := newAsker(t, test.server, workload.Options{})
			got := asker.Ask(t.Context(), &metav1.ObjectMeta{Name: "shop"}, serviceAccount(map[string]string{"lanyard.dev/aws-role-arn": role}), newPod())
			if !strings.HasPrefix(kind(&got), test.want) {
				t.Errorf("got %q, want %q", kind(&got), test.want)
			}
			if n := test.server.pods.Load(); n > 1 {
				t.Errorf("got %d dry runs, want no retry", n)
			}
			if (got.Problem() == nil) != (got.Pod != nil) {
				t.Errorf("got the problem %v, and a pod: %t", got.Problem(), got.Pod != nil)
			}
		})
	}
}

func TestLocalAnswers(t *testing.T) {
	t.Parallel()
	excluding := &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: cluster.PodWebhook, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"injected": "yes"}},
	}}}
	aws := map[string]string{"lanyard.dev/aws-role-arn": role}
	for name, test := range map[string]struct {
		namespace      metav1.ObjectMeta
		serviceAccount *metav1.ObjectMeta
		registration   *admissionregistrationv1.MutatingWebhookConfiguration
		unread         error // of the settings, which may have another default, provider or limit
		want           string
	}{
		"an identity":                        {metav1.ObjectMeta{Name: "shop"}, serviceAccount(aws), nil, nil, "local pod: aws"},
		"no identity":                        {metav1.ObjectMeta{Name: "shop"}, serviceAccount(nil), nil, nil, "local pod: "},
		"a ServiceAccount that was not read": {metav1.ObjectMeta{Name: "shop"}, nil, nil, nil, "local error: the ServiceAccount of the pod was not read"},
		"a mistake": {
			metav1.ObjectMeta{Name: "shop"}, serviceAccount(map[string]string{"lanyard.dev/aws-role-arn": "x"}), nil, nil,
			"local denied by lanyard invalid_annotation: serviceaccount \"shop/cart\": ",
		},
		"a policy of the namespace": {
			metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"lanyard.dev/allowed-identities": "x"}}, serviceAccount(aws), nil, nil,
			"local denied by lanyard identity_not_allowed: ",
		},
		"a namespace that opts out":              {metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"lanyard.dev/inject": "disabled"}}, nil, nil, nil, "local pod: "},
		"a namespace that the settings exclude":  {metav1.ObjectMeta{Name: "kube-system"}, serviceAccount(aws), nil, nil, "local pod: "},
		"a namespace that the webhook excludes":  {metav1.ObjectMeta{Name: "shop"}, serviceAccount(aws), excluding, nil, "local pod: "},
		"a namespace that the webhook selects":   {metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"injected": "yes"}}, serviceAccount(aws), excluding, nil, "local pod: aws"},
		"a registration without Lanyard's entry": {metav1.ObjectMeta{Name: "shop"}, serviceAccount(aws), &admissionregistrationv1.MutatingWebhookConfiguration{}, nil, "local pod: "},
		"an identity, and settings that were not read": {
			metav1.ObjectMeta{Name: "shop"}, serviceAccount(aws), nil, errors.New("forbidden"),
			"local error: --no-dry-run, and the settings of the webhook could not be read: forbidden; pass its configuration file with --config",
		},
		"no identity, and settings that were not read":             {metav1.ObjectMeta{Name: "shop"}, serviceAccount(nil), nil, errors.New("forbidden"), "local error: --no-dry-run, and the settings"},
		"a namespace that the default settings of a webhook leave": {metav1.ObjectMeta{Name: "kube-system"}, serviceAccount(aws), nil, errors.New("forbidden"), "local pod: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := &server{}
			asker := newAsker(t, fake, workload.Options{NoDryRun: true, Registration: test.registration, Unread: test.unread})
			got := asker.Ask(t.Context(), &test.namespace, test.serviceAccount, newPod())
			injected := kind(&got) == "local pod: aws"
			if !strings.HasPrefix(kind(&got), test.want) || injected != (test.want == "local pod: aws") {
				t.Errorf("got %q, want %q", kind(&got), test.want)
			}
			if fake.pods.Load()+fake.reviews.Load() > 0 {
				t.Error("a request was sent")
			}
		})
	}
}

// askAll asks 20 times at once in each of two namespaces.
func askAll(t *testing.T, asker *workload.Asker) {
	t.Helper()
	var wait sync.WaitGroup
	for range 20 {
		for _, namespace := range []string{"a", "b"} {
			wait.Go(func() {
				asker.Ask(t.Context(), &metav1.ObjectMeta{Name: namespace}, serviceAccount(nil), newPod())
			})
		}
	}
	wait.Wait()
}

func TestRightsAreAskedForOnceANamespace(t *testing.T) {
	t.Parallel()
	fake := &server{forbidden: map[string]bool{"b": true}}
	askAll(t, newAsker(t, fake, workload.Options{}))
	if got := [...]int32{fake.reviews.Load(), fake.pods.Load()}; got != [...]int32{2, 20} {
		t.Errorf("got %v reviews and dry runs, want 2 and 20", got)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &server{}
		asker := newAsker(t, fake, workload.Options{Concurrent: 3})
		askAll(t, asker) // afterwards the rights are known, and no request waits for a mutex
		fake.most, fake.delay = 0, time.Second
		start := time.Now()
		askAll(t, asker)
		if got, took := fake.most, time.Since(start); got != 3 || took != 14*time.Second {
			t.Errorf("got %d requests at the same time and 40 requests in %s, want 3 and 14 s", got, took)
		}
	})
}

func TestAFailedReviewIsAskedForAgain(t *testing.T) {
	t.Parallel()
	fake := &server{reviewErr: errors.New("EOF"), forbidden: map[string]bool{"shop": true}}
	asker := newAsker(t, fake, workload.Options{})
	for _, want := range []string{"pod: ", "local pod: ; you may not create pods in the namespace shop"} {
		if got := asker.Ask(t.Context(), &metav1.ObjectMeta{Name: "shop"}, serviceAccount(nil), newPod()); kind(&got) != want {
			t.Errorf("got %q, want %q", kind(&got), want)
		}
		fake.reviewErr = nil
	}
}
