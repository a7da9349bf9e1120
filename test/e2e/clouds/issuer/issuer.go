// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package issuer verifies the service account tokens of one cluster as a cloud
// does: with nothing but the cluster's OIDC discovery and its public keys.
package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// discoveryPath is where kube-apiserver serves its OIDC discovery document.
const discoveryPath = "/.well-known/openid-configuration"

// Issuer is a cluster that issues service account tokens. Its keys are looked
// up when first needed, and again for a token with a key that is not known.
type Issuer struct {
	get func(ctx context.Context, path string) ([]byte, error)

	mu   sync.Mutex
	url  string
	keys jose.JSONWebKeySet
}

// New returns the issuer that the API server behind the config is. The config's
// user may have no other right than those of system:service-account-issuer-discovery,
// which every service account has.
func New(config *rest.Config) (*Issuer, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster's OIDC discovery: %w", err)
	}
	return &Issuer{get: func(ctx context.Context, path string) ([]byte, error) {
		return client.RESTClient().Get().AbsPath(path).DoRaw(ctx)
	}}, nil
}

// URL is the issuer's name, the iss claim of its tokens. It fails where the
// cluster's OIDC discovery has not been read yet and cannot be.
func (i *Issuer) URL(ctx context.Context) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.url == "" {
		if err := i.fetch(ctx); err != nil {
			return "", err
		}
	}
	return i.url, nil
}

// key returns the public key with that id: a cached one, or else one that the
// cluster has added since.
func (i *Issuer) key(ctx context.Context, id string) (*jose.JSONWebKey, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if found := i.keys.Key(id); len(found) > 0 {
		return &found[0], nil
	}
	if err := i.fetch(ctx); err != nil {
		return nil, err
	}
	if found := i.keys.Key(id); len(found) > 0 {
		return &found[0], nil
	}
	return nil, fmt.Errorf("%w: got key id %q, want one of the %d keys of %s", ErrUnknownKey, id, len(i.keys.Keys), i.url)
}

// fetch reads the discovery document and the keys. The caller holds the lock.
func (i *Issuer) fetch(ctx context.Context) error {
	// One slow answer must not hold up those who wait for the lock for longer.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var document struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := i.read(ctx, discoveryPath, &document); err != nil {
		return err
	}
	if document.Issuer == "" {
		return fmt.Errorf("%w: got no issuer in %s, want one", ErrUnavailable, discoveryPath)
	}
	// The host is the one by which the cluster is known outside, which need not
	// be reachable from a pod: the API server has the keys too.
	keysURL, err := url.Parse(document.JWKSURI)
	if err != nil || keysURL.Path == "" {
		return fmt.Errorf("%w: got jwks_uri %q in %s, want a URL with a path", ErrUnavailable, document.JWKSURI, discoveryPath)
	}
	var keys jose.JSONWebKeySet
	if err := i.read(ctx, keysURL.Path, &keys); err != nil {
		return err
	}
	i.url, i.keys = document.Issuer, keys
	return nil
}

func (i *Issuer) read(ctx context.Context, path string, into any) error {
	body, err := i.get(ctx, path)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("%w: reading %s: %w", ErrUnavailable, path, err)
	}
	return nil
}

// What can be wrong with a token. Each cloud has an error of its own for each.
var (
	// ErrMalformed: not a JWT in compact form, signed with RS256, RS384, RS512,
	// ES256, ES384 or ES512, whose claims have the types that they should.
	ErrMalformed = errors.New("malformed token")
	// ErrUnknownIssuer: issued by someone else than the cluster.
	ErrUnknownIssuer = errors.New("unknown issuer")
	// ErrUnavailable: the cluster's discovery or keys could not be read.
	ErrUnavailable = errors.New("issuer's keys are unavailable")
	// ErrUnknownKey: signed with a key that the cluster does not have.
	ErrUnknownKey = errors.New("unknown key")
	// ErrBadSignature: not signed with the key that it names.
	ErrBadSignature = errors.New("bad signature")
	// ErrExpired: its time has passed.
	ErrExpired = errors.New("expired token")
	// ErrNotYetValid: its time has not come.
	ErrNotYetValid = errors.New("token that is not valid yet")
)
