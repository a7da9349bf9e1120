// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// DiscoveryPath is the path of the discovery document below the issuer.
const DiscoveryPath = "/.well-known/openid-configuration"

// keysPath is where every API server serves its keys.
const keysPath = "/openid/v1/jwks"

// maxBytes limits each document.
const maxBytes = 1 << 20

// Discovery has fields of a discovery document.
type Discovery struct {
	Issuer  string `json:"issuer"`
	JWKSURI string `json:"jwks_uri"`
}

// Documents are the public documents of an issuer.
type Documents struct {
	Discovery Discovery
	// Keys are the public keys by their IDs. A key is its parameters as JSON, in one
	// order.
	Keys map[string]string
	// DiscoveryText and KeysText are the documents as they were read.
	DiscoveryText, KeysText []byte
}

// Parse reads both documents.
func Parse(discovery, keys []byte) (*Documents, error) {
	d := Documents{DiscoveryText: discovery, KeysText: keys}
	if err := json.Unmarshal(discovery, &d.Discovery); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	if d.Discovery.Issuer == "" {
		return nil, errors.New("discovery document: got no issuer")
	}
	var err error
	d.Keys, err = parseKeys(keys)
	return &d, err
}

// parseKeys reads a JSON Web Key Set.
func parseKeys(text []byte) (map[string]string, error) {
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("keys: got none")
	}
	keys := map[string]string{}
	for _, key := range set.Keys {
		id, _ := key["kid"].(string)
		// The parameters that identify a key: RFC 7638.
		parameters := map[string]any{}
		for _, name := range []string{"kty", "n", "e", "crv", "x", "y"} {
			if value, found := key[name]; found {
				parameters[name] = value
			}
		}
		encoded, err := json.Marshal(parameters)
		if err != nil {
			return nil, fmt.Errorf("keys: %q: %w", id, err)
		}
		keys[id] = string(encoded)
	}
	return keys, nil
}

// FromCluster reads the documents of the cluster itself.
func FromCluster(ctx context.Context, client rest.Interface) (*Documents, error) {
	discovery, err := client.Get().AbsPath(DiscoveryPath).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", DiscoveryPath, err)
	}
	keys, err := client.Get().AbsPath(keysPath).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", keysPath, err)
	}
	return Parse(discovery, keys)
}

// FromURL reads the documents of a URL as a cloud does: without credentials.
func FromURL(ctx context.Context, client *http.Client, base string) (*Documents, error) {
	discovery, err := get(ctx, client, strings.TrimSuffix(base, "/")+DiscoveryPath)
	if err != nil {
		return nil, err
	}
	var d Discovery
	if err := json.Unmarshal(discovery, &d); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	if !strings.HasPrefix(d.JWKSURI, "https://") {
		return nil, fmt.Errorf("discovery document: jwks_uri: got %q, want an https URL", d.JWKSURI)
	}
	keys, err := get(ctx, client, d.JWKSURI)
	if err != nil {
		return nil, err
	}
	return Parse(discovery, keys)
}

func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", address, err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("get %s: got status %s, want 200 OK", address, response.Status)
	case len(text) > maxBytes:
		return nil, fmt.Errorf("get %s: got more than %d bytes", address, maxBytes)
	}
	return bytes.TrimSpace(text), nil
}

// Compare returns the mistakes in the public documents for which a cloud would deny
// the cluster's tokens. Additional public keys are not a mistake: they belong to a
// rotation.
func Compare(cluster, public *Documents) []string {
	var wrong []string
	if got, want := public.Discovery.Issuer, cluster.Discovery.Issuer; got != want {
		wrong = append(wrong, fmt.Sprintf("the public issuer is %q, but tokens have %q", got, want))
	}
	for _, id := range slices.Sorted(maps.Keys(cluster.Keys)) {
		key, found := public.Keys[id]
		switch {
		case !found:
			wrong = append(wrong, fmt.Sprintf("key %s of the cluster is not public", id))
		case key != cluster.Keys[id]:
			wrong = append(wrong, fmt.Sprintf("the public key %s differs from the cluster's", id))
		}
	}
	return wrong
}

// Public reports whether a cloud could read the documents of the issuer: it is an
// https URL of a host that is not the cluster's own.
func Public(issuer string) bool {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" {
		return false
	}
	host := strings.TrimSuffix(u.Hostname(), ".")
	if address, err := netip.ParseAddr(host); err == nil {
		return !address.IsPrivate() && !address.IsLoopback() && !address.IsLinkLocalUnicast()
	}
	if !strings.Contains(host, ".") {
		return false
	}
	for _, suffix := range []string{".svc", ".local", ".internal", ".localhost"} {
		if strings.HasSuffix(host, suffix) {
			return false
		}
	}
	return true
}
