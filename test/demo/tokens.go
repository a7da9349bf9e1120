// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// claims are the claims that a cloud checks.
type claims struct {
	Issuer     string   `json:"iss"`
	Subject    string   `json:"sub"`
	Audience   []string `json:"aud"`
	IssuedAt   int64    `json:"iat"`
	Expires    int64    `json:"exp"`
	Kubernetes struct {
		Pod struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"pod"`
	} `json:"kubernetes.io"`
}

// readClaims decodes the claims of a JSON Web Token (RFC 7519). Errors never contain a
// part of the token.
func readClaims(token string) (c claims, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, fmt.Errorf("got a token with %d parts, want 3", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("decode the token's claims: %w", err)
	}
	return c, nil
}

// check compares the claims with the pod's volume and returns the differences.
func (c *claims) check(pod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection) (problems []string) {
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
func (c *claims) expires() string {
	lifetime := time.Duration(c.Expires-c.IssuedAt) * time.Second
	return fmt.Sprintf("%s (in %s)", time.Unix(c.Expires, 0).UTC().Format(time.RFC3339), lifetime)
}

// requestToken requests a projected token as a kubelet does. The API server verifies the
// token's signature and audience.
func (d *demo) requestToken(ctx context.Context, pod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection) (claims, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:         []string{projection.Audience},
		ExpirationSeconds: projection.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	response, err := d.cluster.CoreV1().ServiceAccounts(pod.Namespace).
		CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return claims{}, fmt.Errorf("request the token %s: %w", projection.Path, err)
	}
	review, err := d.cluster.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: response.Status.Token, Audiences: []string{projection.Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return claims{}, fmt.Errorf("review the token %s: %w", projection.Path, err)
	}
	if !review.Status.Authenticated {
		return claims{}, fmt.Errorf("review the token %s: got %q, want an authenticated token", projection.Path, review.Status.Error)
	}
	return readClaims(response.Status.Token)
}
