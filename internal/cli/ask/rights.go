// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package ask

import (
	"context"
	"fmt"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Right is a right of the user.
type Right struct {
	Verb     string `json:"verb"`
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
	// Namespace is empty for all namespaces, and for resources without one.
	Namespace string `json:"namespace,omitempty"`
}

// String returns the right as the object of the verb may: "create pods in the namespace
// shop".
func (r Right) String() string {
	text := r.Verb + " " + schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Namespace != "" {
		text += " in the namespace " + r.Namespace
	}
	return text
}

// known is a right that is asked for once.
type known struct {
	mu             sync.Mutex
	known, allowed bool
}

// May reports whether the user has a right. The API server is asked once for each right.
func (a *Asker) May(ctx context.Context, r Right) (bool, error) {
	a.mu.Lock()
	k := a.rights[r]
	if k == nil {
		k = new(known)
		a.rights[r] = k
	}
	a.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known {
		return k.allowed, nil
	}
	defer a.slot()()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Resource: r.Resource},
	}}
	response, err := a.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether you may %s: %w", r, err)
	}
	k.known, k.allowed = true, response.Status.Allowed
	return k.allowed, nil
}
