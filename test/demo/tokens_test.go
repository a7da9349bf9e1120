// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const goodClaims = `{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:demo:app",
	"aud":["sts.amazonaws.com"],"iat":1000,"exp":4600,"kubernetes.io":{"pod":{"name":"p","uid":"u"}}}`

func TestVerify(t *testing.T) {
	t.Parallel()
	key, other := newKey(t), newKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := parseKeys(jwks(t, "k", key, "r", rsaKey))
	if err != nil {
		t.Fatal(err)
	}
	goodRSA := signRSA(t, rsaKey, `{"alg":"RS256","kid":"r"}`, goodClaims)
	good := sign(t, key, `{"alg":"ES256","kid":"k"}`, goodClaims)
	parts := strings.Split(good, ".")
	tests := map[string]struct {
		token   string
		wantErr string
	}{
		"a token of a published key is valid":     {token: good},
		"a token of a published RSA key is valid": {token: goodRSA},
		"an RSA token of another algorithm is rejected": {
			signRSA(t, rsaKey, `{"alg":"HS256","kid":"r"}`, goodClaims), "does not match",
		},
		"a token with the key ID of an RSA key is rejected": {sign(t, key, `{"alg":"ES256","kid":"r"}`, goodClaims), "does not match"},
		"changed claims of an RSA token are rejected": {
			replacePart(goodRSA, 1, `{"aud":["mine"]}`), "does not match",
		},
		"a token of another key is rejected":      {sign(t, other, `{"alg":"ES256","kid":"k"}`, goodClaims), "does not match"},
		"a token of an unknown key is rejected":   {sign(t, key, `{"alg":"ES256","kid":"x"}`, goodClaims), `key ID "x"`},
		"a token without a signature is rejected": {parts[0] + "." + parts[1] + ".", "does not match"},
		"a token with alg none is rejected":       {sign(t, key, `{"alg":"none","kid":"k"}`, goodClaims), `algorithm "none"`},
		"changed claims are rejected": {
			replacePart(good, 1, `{"aud":["mine"]}`), "does not match",
		},
		"a string without dots is rejected": {"abc", "1 parts"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := keys.verify(test.token)
			if test.wantErr == "" {
				if err != nil || c.Subject != "system:serviceaccount:demo:app" {
					t.Errorf("got claims %+v and error %v, want the signed claims", c, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("got error %v, want one with %q", err, test.wantErr)
			}
		})
	}
}

func TestClaimsCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change string // to the claims
		to     string
		want   []string
	}{
		"the claims that the volume requests are valid": {},
		"another audience is reported": {
			`"sts.amazonaws.com"`, `"vault"`, []string{`token aws/token: aud: got ["vault"], want ["sts.amazonaws.com"]`},
		},
		"an additional audience is reported": {
			`"sts.amazonaws.com"`, `"sts.amazonaws.com","api"`, []string{`token aws/token: aud: got ["sts.amazonaws.com" "api"], want ["sts.amazonaws.com"]`},
		},
		"another ServiceAccount is reported": {
			"demo:app", "demo:default", []string{"token aws/token: sub: got system:serviceaccount:demo:default, want system:serviceaccount:demo:app"},
		},
		"another issuer is reported": {
			"https://kubernetes.default", "https://other", []string{"token aws/token: iss: got https://other.svc.cluster.local, want https://kubernetes.default.svc.cluster.local"},
		},
		"another lifetime is reported": {"4600", "4607", []string{"token aws/token: exp - iat: got 3607, want 3600"}},
		"another pod is reported":      {`"name":"p"`, `"name":"q"`, []string{"token aws/token: pod: got q, want p"}},
		"another pod of the same name is reported": {
			`"uid":"u"`, `"uid":"v"`, []string{"token aws/token: pod uid: got v, want u"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c claims
			if err := json.Unmarshal([]byte(strings.Replace(goodClaims, test.change, test.to, 1)), &c); err != nil {
				t.Fatal(err)
			}
			seconds := int64(3600)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "p", UID: "u"}, Spec: corev1.PodSpec{ServiceAccountName: "app"}}
			got := c.check(pod, &corev1.ServiceAccountTokenProjection{Audience: "sts.amazonaws.com", ExpirationSeconds: &seconds, Path: "aws/token"})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// jwks returns a key set with both keys, and with another key that parseKeys
// skips.
func jwks(t *testing.T, id string, key *ecdsa.PrivateKey, rsaID string, rsaKey *rsa.PrivateKey) []byte {
	t.Helper()
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"o","x":"AQ"},
		{"kty":"RSA","kid":%q,"n":%q,"e":"AQAB"},{"kty":"EC","crv":"P-256","kid":%q,"x":%q,"y":%q}]}`,
		rsaID, encode(rsaKey.N.Bytes()), id, encode(point[1:33]), encode(point[33:]))
}

func sign(t *testing.T, key *ecdsa.PrivateKey, header, claims string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(header)) + "." + encode([]byte(claims))
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature)
}

func signRSA(t *testing.T, key *rsa.PrivateKey, header, claims string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(header)) + "." + encode([]byte(claims))
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encode(signature)
}

// replacePart replaces one of the three parts of a token.
func replacePart(token string, index int, text string) string {
	parts := strings.Split(token, ".")
	parts[index] = base64.RawURLEncoding.EncodeToString([]byte(text))
	return strings.Join(parts, ".")
}
