// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package issuer_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	key := issuertest.RSA(t, "key-1")
	cluster := issuertest.Start(t, key)
	claims := issuertest.Claims("sts.amazonaws.com", nil)
	got, err := cluster.Verify(t.Context(), key.Sign(t, claims), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issued := time.Unix(claims["iat"].(int64), 0)
	want := issuer.Token{
		Issuer: issuertest.URL, Subject: issuertest.Subject, Audience: []string{"sts.amazonaws.com"}, ID: "a-token",
		IssuedAt: issued, NotBefore: issued, Expires: issued.Add(10 * time.Minute),
		Namespace:      "shop",
		ServiceAccount: issuer.Object{Name: "cart", UID: "0d1e2f3a-0000-4000-8000-000000000000"},
		Pod:            issuer.Object{Name: issuertest.Pod, UID: issuertest.PodUID},
		Algorithm:      "RS256", KeyID: "key-1",
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(issuer.Token{}, "Claims"), cmpopts.EquateApproxTime(0)); diff != "" {
		t.Errorf("token (-want +got):\n%s", diff)
	}
	if got.Claims["sub"] != issuertest.Subject {
		t.Errorf("got claims %v, want all claims", got.Claims)
	}
}

func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	key, elliptic := issuertest.RSA(t, "key-1"), issuertest.ECDSA(t, "key-2")
	cluster := issuertest.Start(t, key, elliptic)
	impostor := issuertest.RSA(t, "key-1")
	now := time.Now()
	sign := func(others map[string]any) string {
		return key.Sign(t, issuertest.Claims("a", others))
	}
	good := sign(nil)
	header, rest, _ := strings.Cut(good, ".")
	_, signature, _ := strings.Cut(rest, ".")
	_, otherRest, _ := strings.Cut(sign(map[string]any{"sub": "system:serviceaccount:shop:admin"}), ".")
	otherPayload, _, _ := strings.Cut(otherRest, ".")
	shared := issuertest.Key{ID: "key-1", Algorithm: jose.HS256}
	tests := map[string]struct {
		token string
		want  error
	}{
		"a valid token":                            {token: good},
		"a valid token with another algorithm":     {token: elliptic.Sign(t, issuertest.Claims("a", nil))},
		"an empty token":                           {token: "", want: issuer.ErrMalformed},
		"not a JWT":                                {token: "abc", want: issuer.ErrMalformed},
		"no signature":                             {token: "eyJhbGciOiJub25lIn0." + rest[:strings.IndexByte(rest, '.')] + ".", want: issuer.ErrMalformed},
		"a token signed with a shared secret":      {token: hmac(t, shared.ID, issuertest.Claims("a", nil)), want: issuer.ErrMalformed},
		"claims of the wrong types":                {token: sign(map[string]any{"sub": 7}), want: issuer.ErrMalformed},
		"a trailing newline":                       {token: good + "\n\n.", want: issuer.ErrMalformed},
		"another issuer":                           {token: sign(map[string]any{"iss": "https://example.test"}), want: issuer.ErrUnknownIssuer},
		"the issuer with a trailing slash":         {token: sign(map[string]any{"iss": issuertest.URL + "/"}), want: issuer.ErrUnknownIssuer},
		"no issuer":                                {token: sign(map[string]any{"iss": nil}), want: issuer.ErrUnknownIssuer},
		"an unknown key":                           {token: issuertest.RSA(t, "key-3").Sign(t, issuertest.Claims("a", nil)), want: issuer.ErrUnknownKey},
		"no key ID":                                {token: issuertest.Key{Algorithm: key.Algorithm, Private: key.Private}.Sign(t, issuertest.Claims("a", nil)), want: issuer.ErrUnknownKey},
		"another key with a known ID":              {token: impostor.Sign(t, issuertest.Claims("a", nil)), want: issuer.ErrBadSignature},
		"the claims of another token":              {token: header + "." + otherPayload + "." + signature, want: issuer.ErrBadSignature},
		"a token that has just expired":            {token: sign(map[string]any{"exp": now.Unix()}), want: issuer.ErrExpired},
		"a token without an expiry":                {token: sign(map[string]any{"exp": nil}), want: issuer.ErrExpired},
		"a token that becomes valid in the future": {token: sign(map[string]any{"nbf": now.Add(2 * time.Minute).Unix()}), want: issuer.ErrNotYetValid},
		"a token issued in the future":             {token: sign(map[string]any{"iat": now.Add(2 * time.Minute).Unix()}), want: issuer.ErrNotYetValid},
		"a token of a clock that is slightly fast": {token: sign(map[string]any{"iat": now.Add(30 * time.Second).Unix()})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, err := cluster.Verify(t.Context(), test.token, now)
			if !errors.Is(err, test.want) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
			if (errors.Is(err, issuer.ErrExpired) || errors.Is(err, issuer.ErrNotYetValid)) && token.Subject != issuertest.Subject {
				t.Errorf("got token %+v, want the subject", token)
			}
			if err != nil && test.token != "" && strings.Contains(err.Error(), test.token) {
				t.Errorf("got error %v, want no token in it", err)
			}
		})
	}
}

func hmac(t *testing.T, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: make([]byte, 32)}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	return issuertest.Serialize(t, signer, claims)
}

func TestNewKeyIsRead(t *testing.T) {
	t.Parallel()
	first, second := issuertest.RSA(t, "key-1"), issuertest.RSA(t, "key-2")
	cluster := issuertest.Start(t, first)
	tokens := []string{first.Sign(t, issuertest.Claims("a", nil)), second.Sign(t, issuertest.Claims("a", nil))}
	for range 2 {
		if _, err := cluster.Verify(t.Context(), tokens[0], time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if got := cluster.KeyReads(); got != 1 {
		t.Errorf("got %d reads of the keys, want 1 for a known key", got)
	}
	cluster.Publish(second)
	if _, err := cluster.Verify(t.Context(), tokens[1], time.Now()); err != nil {
		t.Errorf("got error %v for a token of the new key, want none", err)
	}
	if got := cluster.KeyReads(); got != 2 {
		t.Errorf("got %d reads of the keys, want 2", got)
	}
}

func TestUnavailableIssuerIsRetried(t *testing.T) {
	t.Parallel()
	key := issuertest.RSA(t, "key-1")
	cluster := issuertest.Start(t, key)
	cluster.SetDown(true)
	token := key.Sign(t, issuertest.Claims("a", nil))
	if _, err := cluster.Verify(t.Context(), token, time.Now()); !errors.Is(err, issuer.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, issuer.ErrUnavailable)
	}
	cluster.SetDown(false)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := cluster.Verify(t.Context(), token, time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
