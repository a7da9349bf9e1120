// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package issuer verifies the ServiceAccount tokens of one cluster as a cloud
// does: using only the cluster's OIDC discovery and public keys.
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

// discoveryPath is the path of kube-apiserver's OIDC discovery document.
const discoveryPath = "/.well-known/openid-configuration"

// Issuer is a cluster that issues ServiceAccount tokens. It reads the keys on
// first use, and again for a token with an unknown key.
type Issuer struct {
	get func(ctx context.Context, path string) ([]byte, error) // nil with uploaded keys

	mu   sync.Mutex
	url  string
	keys jose.JSONWebKeySet
}

// New returns the issuer behind the config's API server. The config's user only
// needs the rights of system:service-account-issuer-discovery, which every
// ServiceAccount has.
func New(config *rest.Config) (*Issuer, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client for the cluster's OIDC discovery: %w", err)
	}
	return &Issuer{get: func(ctx context.Context, path string) ([]byte, error) {
		return client.RESTClient().Get().AbsPath(path).DoRaw(ctx)
	}}, nil
}

// Uploaded returns an issuer with uploaded keys, a JSON Web Key Set. Its discovery is not
// read, so it may be unreachable.
func Uploaded(url, jwks string) (*Issuer, error) {
	i := &Issuer{url: url}
	if err := json.Unmarshal([]byte(jwks), &i.keys); err != nil {
		return nil, fmt.Errorf("uploaded keys of %s: want a JSON Web Key Set: %w", url, err)
	}
	if len(i.keys.Keys) == 0 {
		return nil, fmt.Errorf("uploaded keys of %s: got no key, want a JSON Web Key Set with keys", url)
	}
	return i, nil
}

// URL returns the issuer, which is the iss claim of its tokens. It returns an
// error if the cluster's OIDC discovery cannot be read.
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

// key returns the public key with the ID. It reads the keys again if the ID is
// unknown.
func (i *Issuer) key(ctx context.Context, id string) (*jose.JSONWebKey, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if found := i.keys.Key(id); len(found) > 0 {
		return &found[0], nil
	}
	if i.get != nil {
		if err := i.fetch(ctx); err != nil {
			return nil, err
		}
		if found := i.keys.Key(id); len(found) > 0 {
			return &found[0], nil
		}
	}
	return nil, fmt.Errorf("%w: got key ID %q, want one of the %d keys of %s", ErrUnknownKey, id, len(i.keys.Keys), i.url)
}

// fetch reads the discovery document and the keys. The caller must hold the
// lock.
func (i *Issuer) fetch(ctx context.Context) error {
	// Limit the time for which other callers wait for the lock.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var document struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := i.read(ctx, discoveryPath, &document); err != nil {
		return err
	}
	if document.Issuer == "" {
		return fmt.Errorf("%w: no issuer in %s", ErrUnavailable, discoveryPath)
	}
	// Ignore the host: it may only be reachable from outside of the cluster,
	// and the API server serves the keys too.
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
		return fmt.Errorf("%w: read %s: %w", ErrUnavailable, path, err)
	}
	return nil
}

// The reasons why a token is not valid. The clouds have different errors for
// each.
var (
	// ErrMalformed is for anything but a compact JWT that is signed with RS256,
	// RS384, RS512, ES256, ES384 or ES512 and has claims of the expected types.
	ErrMalformed = errors.New("malformed token")
	// ErrUnknownIssuer is for tokens of another issuer.
	ErrUnknownIssuer = errors.New("unknown issuer")
	// ErrUnavailable is for a cluster whose discovery or keys cannot be read.
	ErrUnavailable = errors.New("issuer's keys are unavailable")
	// ErrUnknownKey is for tokens with a key that the cluster does not publish.
	ErrUnknownKey = errors.New("unknown key")
	// ErrBadSignature is for tokens that were not signed with the named key.
	ErrBadSignature = errors.New("bad signature")
	// ErrExpired is for tokens that have expired.
	ErrExpired = errors.New("expired token")
	// ErrNotYetValid is for tokens that are not valid yet.
	ErrNotYetValid = errors.New("token that is not valid yet")
)
