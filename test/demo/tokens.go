// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/demo/claims"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// compare compares the claims with the pod's volume and returns the differences.
func compare(c *claims.Claims, pod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection) (problems []string) {
	differs := func(claim string, got, want any) {
		if got != want {
			problems = append(problems, fmt.Sprintf("token %s: %s: got %v, want %v", projection.Path, claim, got, want))
		}
	}
	differs("iss", c.Issuer, controlplane.DefaultServiceAccountIssuer)
	differs("sub", c.Subject, "system:serviceaccount:"+pod.Namespace+":"+pod.Spec.ServiceAccountName)
	if !slices.Equal(c.Audience, []string{projection.Audience}) {
		differs("aud", fmt.Sprintf("%q", c.Audience), fmt.Sprintf("%q", []string{projection.Audience}))
	}
	differs("exp - iat", c.Expires-c.IssuedAt, *projection.ExpirationSeconds)
	differs("pod", c.Kubernetes.Pod.Name, pod.Name)
	differs("pod uid", c.Kubernetes.Pod.UID, string(pod.UID))
	return problems
}

// expires formats the expiry time and the lifetime.
func expires(c *claims.Claims) string {
	lifetime := time.Duration(c.Expires-c.IssuedAt) * time.Second
	return fmt.Sprintf("%s (in %s)", time.Unix(c.Expires, 0).UTC().Format(time.RFC3339), lifetime)
}

// requestToken requests a projected token as a kubelet does. The API server verifies the
// token's signature and audience.
func (d *demo) requestToken(ctx context.Context, pod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection) (*claims.Claims, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:         []string{projection.Audience},
		ExpirationSeconds: projection.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	response, err := d.cluster.CoreV1().ServiceAccounts(pod.Namespace).
		CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request the token %s: %w", projection.Path, err)
	}
	review, err := d.cluster.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: response.Status.Token, Audiences: []string{projection.Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review the token %s: %w", projection.Path, err)
	}
	if !review.Status.Authenticated {
		return nil, fmt.Errorf("review the token %s: got %q, want an authenticated token", projection.Path, review.Status.Error)
	}
	c, err := claims.Read(response.Status.Token)
	return &c, err
}
