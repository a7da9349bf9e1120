// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

// May reports whether the user has a right, such as create on pods in the namespace shop. The
// resource is written as in kubectl auth can-i: pods, deployments.apps or
// serviceaccounts/token. The namespace is empty for objects of the cluster, or for all
// namespaces.
func May(ctx context.Context, client kubernetes.Interface, verb, resource, namespace string) (bool, error) {
	name, subresource, _ := strings.Cut(resource, "/")
	group := schema.ParseGroupResource(name)
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group.Group, Resource: group.Resource, Subresource: subresource,
		},
	}}
	response, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether you may %s %s: %w", verb, resource, err)
	}
	return response.Status.Allowed, nil
}
