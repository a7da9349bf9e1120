// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package issuertest has a cluster's token issuer for tests, without the
// cluster: OIDC discovery and keys as kube-apiserver serves them.
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
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
)

// URL is the issuer's name. Nothing is there, as in many a cluster.
const URL = "https://kubernetes.default.svc.cluster.local"

// What Claims says of the asker.
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
	down      bool
	keyReads  int
}

// Key signs tokens.
type Key struct {
	// ID is the kid. An empty one is left out.
	ID        string
	Algorithm jose.SignatureAlgorithm
	Private   crypto.Signer
}

// Start returns a cluster that has published the keys. It ends with the test.
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
			// As in a cluster, the host is not the one that was asked.
			"jwks_uri": "https://198.51.100.1:6443/openid/v1/jwks",
		})
	})
	mux.HandleFunc("GET /openid/v1/jwks", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		keys := jose.JSONWebKeySet{Keys: c.published}
		c.keyReads++
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
	c.mu.Lock()
	down := c.down
	c.mu.Unlock()
	if down {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	_ = json.NewEncoder(w).Encode(document)
}

// Server is the URL of its API server.
func (c *Cluster) Server() string {
	return c.server.URL
}

// Publish adds a key to those that the cluster tells of.
func (c *Cluster) Publish(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.published = append(c.published, jose.JSONWebKey{Key: key.Private.Public(), KeyID: key.ID, Algorithm: string(key.Algorithm), Use: "sig"})
}

// SetDown says whether the cluster refuses to tell anything.
func (c *Cluster) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// KeyReads is how often the keys were read.
func (c *Cluster) KeyReads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keyReads
}

// RSA is a new key for RS256, with that id.
func RSA(t testing.TB, id string) Key {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return Key{ID: id, Algorithm: jose.RS256, Private: key}
}

// ECDSA is a new key for ES256, with that id.
func ECDSA(t testing.TB, id string) Key {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Key{ID: id, Algorithm: jose.ES256, Private: key}
}

// Claims are those of a token that a kubelet has just asked for, valid for ten
// minutes, with the other claims in place of theirs. One that is nil is left
// out.
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

// Sign is a token with the claims.
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

// Serialize is a token with the claims, of any signer.
func Serialize(t testing.TB, signer jose.Signer, claims map[string]any) string {
	t.Helper()
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
