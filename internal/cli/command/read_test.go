// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMay(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]authorizationv1.ResourceAttributes{
		"pods":                  {Namespace: "shop", Verb: "create", Resource: "pods"},
		"deployments.apps":      {Namespace: "shop", Verb: "create", Group: "apps", Resource: "deployments"},
		"serviceaccounts/token": {Namespace: "shop", Verb: "create", Resource: "serviceaccounts", Subresource: "token"},
	} {
		client := fake.NewClientset()
		var asked authorizationv1.ResourceAttributes
		client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
			review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
			asked = *review.Spec.ResourceAttributes
			review.Status.Allowed = asked.Resource != "deployments"
			return true, review, nil
		})
		may, err := May(t.Context(), client, "create", resource, "shop")
		if diff := cmp.Diff(want, asked); diff != "" || err != nil || may != (resource != "deployments.apps") {
			t.Errorf("%s: got %t and %v (-want +got):\n%s", resource, may, err, diff)
		}
	}
}

func TestMayWithAnError(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no route")
	})
	if _, err := May(t.Context(), client, "create", "pods", ""); err == nil || err.Error() != "ask whether you may create pods: no route" {
		t.Errorf("got %v", err)
	}
}
