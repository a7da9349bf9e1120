// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package issuer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Leeway is the tolerated clock difference for the start of a token's validity.
// There is no leeway for its end, so that tests do not have to wait for it.
const Leeway = time.Minute

// algorithms are the possible algorithms of a cluster's signing key.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512,
}

// Token contains the claims of a ServiceAccount token.
type Token struct {
	Issuer   string
	Subject  string
	Audience []string
	// ID is the claim jti.
	ID string
	// IssuedAt, NotBefore and Expires are zero if the claims are missing.
	IssuedAt, NotBefore, Expires time.Time
	// Namespace, ServiceAccount and Pod are the objects that the token is bound
	// to. Pod is empty if the token is not bound to one.
	Namespace      string
	ServiceAccount Object
	Pod            Object

	// Algorithm and KeyID are alg and kid of the header.
	Algorithm string
	KeyID     string
	// Claims contains all claims.
	Claims map[string]any
}

// IsFor reports whether the token has any of the audiences.
func (t *Token) IsFor(audiences ...string) bool {
	return slices.ContainsFunc(t.Audience, func(a string) bool { return slices.Contains(audiences, a) })
}

// Object identifies an object in the token's namespace.
type Object struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Verify returns the contents of a token if the cluster signed it and it is valid now.
// Otherwise, it returns an error that wraps one of this package's errors, and the readable
// contents, which are verified only with ErrExpired and ErrNotYetValid.
func (i *Issuer) Verify(ctx context.Context, raw string, now time.Time) (Token, error) {
	parsed, err := jwt.ParseSigned(raw, algorithms)
	if err != nil {
		// The library's error may contain parts of the token.
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
	// A token without an expiry is not a ServiceAccount token.
	if !now.Before(token.Expires) {
		return fmt.Errorf("%w: got expiry %v, want a time after %v", ErrExpired, token.Expires, now)
	}
	latest := now.Add(Leeway)
	if token.NotBefore.After(latest) || token.IssuedAt.After(latest) {
		return fmt.Errorf("%w: got start %v and issue time %v, want both before %v", ErrNotYetValid, token.NotBefore, token.IssuedAt, latest)
	}
	return nil
}

// read decodes the token without verifying it.
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
