// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

func TestCreateReturnsAnErrorForAPodThatMustNotBeCreated(t *testing.T) {
	t.Parallel()
	mutator, err := mutate.New(nil, []string{"https://issuer.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pod, audience  string
		reason, detail string // no reason: the error is no Denial
	}{
		"malformed JSON":         {`{`, "a", "", "pod: "},
		"text after the pod":     {`{"spec":{"serviceAccountName":"app"}} {}`, "a", "", "pod: "},
		"another ServiceAccount": {`{}`, "a", "", `spec.serviceAccountName: got "default", want "app"`},
		"a malformed annotation": {`{"spec":{"serviceAccountName":"app"}}`, "", "invalid_annotation", "lanyard.dev/audience"},
		"no identity yet":        {`{"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`, "", "identity_required", "annotate the ServiceAccount"},
		"a reserved audience":    {`{"spec":{"serviceAccountName":"app"}}`, "https://issuer.example.com", "invalid_annotation", "Kubernetes API server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{annotations.Audience: test.audience}}}
			if test.reason == "identity_required" {
				serviceAccount.Annotations, serviceAccount.Labels = nil, map[string]string{annotations.IdentityLabel: annotations.IdentityRequired}
			}
			result, err := mutator.Create([]byte(test.pod), serviceAccount, nil)
			if err == nil || !strings.Contains(err.Error(), test.detail) {
				t.Fatalf("got %+v and error %v, want an error with %q", result, err, test.detail)
			}
			denial, denied := errors.AsType[*mutate.Denial](err)
			if denied != (test.reason != "") || denied && denial.Reason != test.reason {
				t.Errorf("got %#v, want reason %q", err, test.reason)
			}
		})
	}
}

// A caller that found no Namespace has a nil pointer, which is not a nil interface.
func TestANamespaceMayBeNil(t *testing.T) {
	t.Parallel()
	mutator, err := mutate.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{annotations.Audience: "vault"}}}
	var none *corev1.Namespace
	for name, namespace := range map[string]metav1.Object{"no object": nil, "no namespace": none, "a namespace": &corev1.Namespace{}} {
		result, err := mutator.Create([]byte(`{"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`), serviceAccount, namespace)
		if err != nil || result.Reason != "injected" {
			t.Errorf("%s: got %s and error %v, want injected", name, result.Reason, err)
		}
	}
}

func TestAPodWithTwoListsOfContainersIsNotRead(t *testing.T) {
	t.Parallel()
	mutator, err := mutate.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{annotations.Audience: "vault"}}}
	const pod = `{"spec":{"serviceAccountName":"app","containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"c"}]}}`
	result, err := mutator.Create([]byte(pod), serviceAccount, nil)
	if err == nil || !strings.Contains(err.Error(), "containers: is there twice") {
		t.Errorf("got patch %s and error %v, want an error about containers", result.Patch, err)
	}
}
