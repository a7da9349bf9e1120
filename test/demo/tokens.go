// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// keySet maps key IDs to public keys, *ecdsa.PublicKey or *rsa.PublicKey.
type keySet map[string]crypto.PublicKey

// jwk is a key of a JWK set (RFC 7517).
type jwk struct{ Kty, Crv, Kid, X, Y, N, E string }

// parseKeys reads a JWK set. It skips keys of types that API servers do not use by
// default.
func parseKeys(document []byte) (keySet, error) {
	var parsed struct{ Keys []jwk }
	if err := json.Unmarshal(document, &parsed); err != nil {
		return nil, fmt.Errorf("read the issuer's keys: %w", err)
	}
	keys := keySet{}
	for _, key := range parsed.Keys {
		var public crypto.PublicKey
		var err error
		switch {
		case key.Crv == "P-256":
			public, err = key.ecdsa()
		case key.Kty == "RSA":
			public, err = key.rsa()
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the issuer's key %q: %w", key.Kid, err)
		}
		keys[key.Kid] = public
	}
	return keys, nil
}

func (k *jwk) ecdsa() (*ecdsa.PublicKey, error) {
	x, errX := base64.RawURLEncoding.DecodeString(k.X)
	y, errY := base64.RawURLEncoding.DecodeString(k.Y)
	if err := errors.Join(errX, errY); err != nil {
		return nil, err
	}
	// An uncompressed point: the byte 4 and both coordinates.
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
}

func (k *jwk) rsa() (*rsa.PublicKey, error) {
	n, errN := base64.RawURLEncoding.DecodeString(k.N)
	e, errE := base64.RawURLEncoding.DecodeString(k.E)
	if err := errors.Join(errN, errE); err != nil {
		return nil, err
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}, nil
}

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

// verify returns the claims of a JSON Web Token (RFC 7519) if one of the keys
// signed it. Errors never contain a part of the token.
func (keys keySet) verify(token string) (claims, error) {
	var c claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, fmt.Errorf("got a token with %d parts, want 3", len(parts))
	}
	var header struct{ Alg, Kid string }
	if err := decodePart(parts[0], &header); err != nil {
		return c, fmt.Errorf("decode the token's header: %w", err)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return c, fmt.Errorf("decode the token's signature: %w", err)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	valid := false
	switch key := keys[header.Kid].(type) {
	case *ecdsa.PublicKey:
		// Two numbers of 32 bytes (RFC 7518, section 3.4).
		valid = header.Alg == "ES256" && len(signature) == 64 &&
			ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
	case *rsa.PublicKey:
		valid = header.Alg == "RS256" && rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
	default:
		return c, fmt.Errorf("got the key ID %q, want one that the issuer publishes", header.Kid)
	}
	if !valid {
		return c, fmt.Errorf("the token's signature, with the algorithm %q, does not match its key", header.Alg)
	}
	if err := decodePart(parts[1], &c); err != nil {
		return c, fmt.Errorf("decode the token's claims: %w", err)
	}
	return c, nil
}

func decodePart(part string, into any) error {
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
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

// requestToken requests a projected token as a kubelet does, and verifies it.
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
	return d.keys.verify(response.Status.Token)
}
