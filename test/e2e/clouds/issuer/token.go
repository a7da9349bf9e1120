// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package issuer

import (
	"context"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Leeway is how far in the future a token may have been issued: the clocks of
// the API server and of this process need not agree. An expired token is given
// none, so that a test need not wait for it.
const Leeway = time.Minute

// algorithms are those that a service account's key may have.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512,
}

// Token is what a service account token says.
type Token struct {
	Issuer   string
	Subject  string
	Audience []string
	// ID is the claim jti.
	ID string
	// IssuedAt, NotBefore and Expires are zero where the token has none.
	IssuedAt, NotBefore, Expires time.Time
	// Namespace, ServiceAccount and Pod are whom the token is bound to. A token
	// need not be bound to a pod.
	Namespace      string
	ServiceAccount Object
	Pod            Object

	// Algorithm and KeyID are the header's alg and kid.
	Algorithm string
	KeyID     string
	// Claims has every claim.
	Claims map[string]any
}

// Object names an object of the token's namespace.
type Object struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Verify returns what the token says if the cluster has signed it and if it is
// valid now, and otherwise an error that wraps one of this package's. Then the
// token says as much as could be read, of which nothing is certain but after
// ErrExpired and ErrNotYetValid.
func (i *Issuer) Verify(ctx context.Context, raw string, now time.Time) (Token, error) {
	parsed, err := jwt.ParseSigned(raw, algorithms)
	if err != nil {
		// The library's text may quote parts of the token.
		return Token{}, ErrMalformed
	}
	token, err := read(parsed)
	if err != nil {
		return Token{}, err
	}
	url, err := i.URL(ctx)
	if err != nil {
		return token, err
	}
	if token.Issuer != url {
		return token, fmt.Errorf("%w: got %q, want %q", ErrUnknownIssuer, token.Issuer, url)
	}
	key, err := i.key(ctx, token.KeyID)
	if err != nil {
		return token, err
	}
	if err := parsed.Claims(key); err != nil {
		return token, fmt.Errorf("%w: key %q", ErrBadSignature, token.KeyID)
	}
	return token, checkTime(token, now)
}

func checkTime(token Token, now time.Time) error {
	// Without an end, a token is no service account token.
	if !now.Before(token.Expires) {
		return fmt.Errorf("%w: got the end %v, want one after %v", ErrExpired, token.Expires, now)
	}
	latest := now.Add(Leeway)
	if token.NotBefore.After(latest) || token.IssuedAt.After(latest) {
		return fmt.Errorf("%w: got the start %v, issued %v, want both before %v", ErrNotYetValid, token.NotBefore, token.IssuedAt, latest)
	}
	return nil
}

// read takes the token apart without verifying it.
func read(parsed *jwt.JSONWebToken) (Token, error) {
	var standard jwt.Claims
	var bound struct {
		Kubernetes struct {
			Namespace      string `json:"namespace"`
			ServiceAccount Object `json:"serviceaccount"`
			Pod            Object `json:"pod"`
		} `json:"kubernetes.io"`
	}
	all := map[string]any{}
	if err := parsed.UnsafeClaimsWithoutVerification(&standard, &bound, &all); err != nil {
		return Token{}, ErrMalformed
	}
	return Token{
		Issuer:         standard.Issuer,
		Subject:        standard.Subject,
		Audience:       standard.Audience,
		ID:             standard.ID,
		IssuedAt:       optionalTime(standard.IssuedAt),
		NotBefore:      optionalTime(standard.NotBefore),
		Expires:        optionalTime(standard.Expiry),
		Namespace:      bound.Kubernetes.Namespace,
		ServiceAccount: bound.Kubernetes.ServiceAccount,
		Pod:            bound.Kubernetes.Pod,
		Algorithm:      parsed.Headers[0].Algorithm,
		KeyID:          parsed.Headers[0].KeyID,
		Claims:         all,
	}, nil
}

func optionalTime(date *jwt.NumericDate) time.Time {
	if date == nil {
		return time.Time{}
	}
	return date.Time()
}
