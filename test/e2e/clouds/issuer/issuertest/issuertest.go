// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package issuertest provides a token issuer for tests, with OIDC discovery and
// keys as kube-apiserver serves them.
package issuertest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
)

// URL is the issuer. As in many clusters, nothing serves this URL.
const URL = "https://kubernetes.default.svc.cluster.local"

// The identity in Claims.
const (
	Subject = "system:serviceaccount:shop:cart"
	Pod     = "cart-0"
	PodUID  = "6a6e3c1e-5a2c-4f6b-9d3e-0a1b2c3d4e5f"
)

// Cluster issues tokens.
type Cluster struct {
	*issuer.Issuer

	server *httptest.Server

	mu        sync.Mutex
	published []jose.JSONWebKey
	down      atomic.Bool
	keyReads  atomic.Int32
}

// Key signs tokens.
type Key struct {
	// ID is the kid. If it is empty, the header has no kid.
	ID        string
	Algorithm jose.SignatureAlgorithm
	Private   crypto.Signer
}

// Start returns a cluster with the published keys. It is stopped at the end of
// the test.
func Start(t testing.TB, keys ...Key) *Cluster {
	t.Helper()
	c := &Cluster{}
	for _, key := range keys {
		c.Publish(key)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		c.serve(w, map[string]string{
			"issuer": URL,
			// As in a cluster, this is not the host that received the request.
			"jwks_uri": "https://198.51.100.1:6443/openid/v1/jwks",
		})
	})
	mux.HandleFunc("GET /openid/v1/jwks", func(w http.ResponseWriter, _ *http.Request) {
		c.keyReads.Add(1)
		c.mu.Lock()
		keys := jose.JSONWebKeySet{Keys: c.published}
		c.mu.Unlock()
		c.serve(w, keys)
	})
	c.server = httptest.NewServer(mux)
	t.Cleanup(c.server.Close)
	var err error
	if c.Issuer, err = issuer.New(&rest.Config{Host: c.server.URL}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Cluster) serve(w http.ResponseWriter, document any) {
	if c.down.Load() {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	_ = json.NewEncoder(w).Encode(document)
}

// Server returns the URL of the cluster's API server.
func (c *Cluster) Server() string { return c.server.URL }

// Publish adds a key to the published keys.
func (c *Cluster) Publish(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.published = append(c.published, jose.JSONWebKey{Key: key.Private.Public(), KeyID: key.ID, Algorithm: string(key.Algorithm), Use: "sig"})
}

// SetDown sets whether the cluster denies all requests.
func (c *Cluster) SetDown(down bool) { c.down.Store(down) }

// KeyReads returns the number of times that the keys were read.
func (c *Cluster) KeyReads() int { return int(c.keyReads.Load()) }

// RSA returns a new RS256 key with the ID.
func RSA(t testing.TB, id string) Key {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return Key{ID: id, Algorithm: jose.RS256, Private: key}
}

// ECDSA returns a new ES256 key with the ID.
func ECDSA(t testing.TB, id string) Key {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Key{ID: id, Algorithm: jose.ES256, Private: key}
}

// Claims returns the claims of a new token of a pod, valid for ten minutes. The
// other claims replace these; a nil value removes a claim.
func Claims(audience string, others map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": URL,
		"sub": Subject,
		"aud": []string{audience},
		"jti": "a-token",
		"iat": now.Unix(),
		"nbf": now.Unix(),
		"exp": now.Add(10 * time.Minute).Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      "shop",
			"serviceaccount": map[string]string{"name": "cart", "uid": "0d1e2f3a-0000-4000-8000-000000000000"},
			"pod":            map[string]string{"name": Pod, "uid": PodUID},
		},
	}
	maps.Copy(claims, others)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// Sign returns a token with the claims.
func (k Key) Sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	options := &jose.SignerOptions{}
	if k.ID != "" {
		options = options.WithHeader("kid", k.ID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: k.Algorithm, Key: k.Private}, options)
	if err != nil {
		t.Fatal(err)
	}
	return Serialize(t, signer, claims)
}

// Case is a token that a test presents.
type Case struct {
	// Audience and Claims are the arguments of the function Claims.
	Audience string
	Claims   map[string]any
	// OtherKey makes the cluster sign the token with a key that is not published.
	OtherKey bool
	// Down makes the cluster deny all requests.
	Down bool
}

// Issue starts a cluster and returns it with the token.
func (c Case) Issue(t testing.TB) (*Cluster, string) {
	t.Helper()
	key := RSA(t, "key-1")
	cluster := Start(t, key)
	cluster.SetDown(c.Down)
	if c.OtherKey {
		key = RSA(t, "key-1")
	}
	return cluster, key.Sign(t, Claims(c.Audience, c.Claims))
}

// Serialize returns a token with the claims, signed by any signer.
func Serialize(t testing.TB, signer jose.Signer, claims map[string]any) string {
	t.Helper()
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
