// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

const (
	// DiscoveryPath is the path of the discovery document below the issuer.
	DiscoveryPath = "/.well-known/openid-configuration"
	// keysPath is the path of the keys on every API server.
	keysPath = "/openid/v1/jwks"
	// maxBytes limits each document.
	maxBytes = 1 << 20
)

// Discovery contains fields of a discovery document.
type Discovery struct {
	Issuer  string `json:"issuer"`
	JWKSURI string `json:"jwks_uri"`
	// Algorithms are the algorithms of all keys.
	Algorithms []string `json:"id_token_signing_alg_values_supported"`
}

// Documents are the public documents of an issuer.
type Documents struct {
	Discovery Discovery
	// Keys maps key IDs to the parameters of the public keys, in a canonical order.
	Keys map[string]string
	// Age is how long caches have had the older of the documents that were read from a URL, or
	// zero if no cache reports it (RFC 9111, section 5.1).
	Age time.Duration

	members map[string]any             // of the discovery document
	texts   map[string]json.RawMessage // of the keys
	// discoveryVersion and keysVersion are set for documents that were read from a URL.
	discoveryVersion, keysVersion version
}

// version identifies the version of an object in cloud storage.
type version struct{ ETag, Generation string }

// Parse reads both documents.
func Parse(discovery, keys []byte) (*Documents, error) {
	d := Documents{Keys: map[string]string{}, texts: map[string]json.RawMessage{}}
	if err := errors.Join(json.Unmarshal(discovery, &d.Discovery), json.Unmarshal(discovery, &d.members)); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	if d.Discovery.Issuer == "" {
		return nil, errors.New("discovery document: the issuer is missing")
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(keys, &set); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("keys: the document has no keys")
	}
	for i, text := range set.Keys {
		var key map[string]any
		if err := json.Unmarshal(text, &key); err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		id, _ := key["kid"].(string)
		if !texts.IsVisible(id) { // it is printed in commands
			return nil, fmt.Errorf("keys[%d]: kid %q: want ASCII characters without spaces", i, texts.Cut(id, texts.MaxShown))
		}
		// The parameters that identify a key: RFC 7638.
		parameters := fmt.Sprintf("%v %v %v %v %v %v", key["kty"], key["n"], key["e"], key["crv"], key["x"], key["y"])
		if other, found := d.Keys[id]; found && other != parameters {
			return nil, fmt.Errorf("keys[%d]: another key has the same kid %q", i, id)
		}
		d.Keys[id], d.texts[id] = parameters, text
	}
	return &d, nil
}

// DiscoveryText returns the discovery document: the members that were read, updated from Discovery.
func (d *Documents) DiscoveryText() string {
	members := maps.Clone(d.members)
	members["issuer"], members["jwks_uri"] = d.Discovery.Issuer, d.Discovery.JWKSURI
	if len(d.Discovery.Algorithms) > 0 {
		members["id_token_signing_alg_values_supported"] = d.Discovery.Algorithms
	}
	var text bytes.Buffer
	_ = json.Indent(&text, []byte(compact(members)+"\n"), "", "  ") // compact returns JSON
	return text.String()
}

// KeysText returns the document of the keys, in the order of their IDs.
func (d *Documents) KeysText() string {
	keys := []json.RawMessage{}
	for _, id := range d.KeyIDs() {
		keys = append(keys, d.texts[id])
	}
	return compact(map[string]any{"keys": keys})
}

// FromCluster reads the documents from the API server. If the user lacks the right, the
// response is not a Status, so client-go's error message would be "unknown".
func FromCluster(ctx context.Context, client rest.Interface) (*Documents, error) {
	var texts [2][]byte
	for i, path := range []string{DiscoveryPath, keysPath} {
		text, err := client.Get().AbsPath(path).DoRaw(ctx)
		if apierrors.IsForbidden(err) {
			message := "you may not get " + path + ": ask an administrator for the ClusterRole lanyard-view"
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: message}}
		}
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", path, err)
		}
		texts[i] = text
	}
	return Parse(texts[0], texts[1])
}

// unreadableError is returned for a document that could not be read from its URL.
type unreadableError struct{ error }

// Unwrap returns the cause.
func (e unreadableError) Unwrap() error { return e.error }

// FromURL reads the documents at a URL without credentials, as a cloud does.
func FromURL(ctx context.Context, client *http.Client, base string) (*Documents, error) {
	discovery, err := get(ctx, client, strings.TrimSuffix(base, "/")+DiscoveryPath)
	if err != nil {
		return nil, err
	}
	var d Discovery
	if err := json.Unmarshal(discovery.body, &d); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	if !strings.HasPrefix(d.JWKSURI, "https://") {
		return nil, fmt.Errorf("discovery document: jwks_uri %q is not an https URL", d.JWKSURI)
	}
	keys, err := get(ctx, client, d.JWKSURI)
	if err != nil {
		return nil, err
	}
	if d.JWKSURI != strings.TrimSuffix(base, "/")+keysPath {
		keys.version = version{} // of another object than the one that is published
	}
	documents, err := Parse(discovery.body, keys.body)
	if err == nil {
		documents.discoveryVersion, documents.keysVersion = discovery.version, keys.version
		documents.Age = max(discovery.age, keys.age)
	}
	return documents, err
}

// published is a document that was read from a URL.
type published struct {
	body    []byte
	version version
	age     time.Duration
}

func get(ctx context.Context, client *http.Client, address string) (p published, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return p, err
	}
	status, header, body, err := exchange.Read(client, request, maxBytes)
	if _, noResponse := errors.AsType[*url.Error](err); noResponse {
		return p, unreadableError{err}
	}
	if err == nil && status != http.StatusOK {
		err = unreadableError{fmt.Errorf("get %s: status %d %s", address, status, http.StatusText(status))}
	}
	// A CDN in front of the storage may weaken the ETag.
	etag := strings.Trim(strings.TrimPrefix(header.Get("ETag"), "W/"), `"`)
	seconds, _ := strconv.ParseUint(header.Get("Age"), 10, 31) // 0 without a valid header
	return published{bytes.TrimSpace(body), version{etag, header.Get("X-Goog-Generation")}, time.Duration(seconds) * time.Second}, err
}

// Compare compares the public documents with the cluster. signing is the ID of the current
// signing key, or empty if it is unknown. wrong lists mistakes for which clouds reject the
// cluster's tokens. foreign lists public keys that the cluster does not have: keys of other
// clusters with the same issuer, or previous or future ones.
func Compare(cluster, public *Documents, signing string) (wrong, foreign []string) {
	if got, want := public.Discovery.Issuer, cluster.Discovery.Issuer; got != want {
		wrong = append(wrong, fmt.Sprintf("the public issuer is %q, but tokens have %q", got, want))
	}
	for _, id := range cluster.KeyIDs() {
		key, found := public.Keys[id]
		switch {
		case !found && id == signing:
			wrong = append(wrong, fmt.Sprintf("key %s of the cluster is not public, and signs at present", id))
		case !found:
			wrong = append(wrong, fmt.Sprintf("key %s of the cluster is not public", id))
		case key != cluster.Keys[id]:
			wrong = append(wrong, fmt.Sprintf("the public key %s differs from the cluster's", id))
		}
	}
	foreign = slices.DeleteFunc(public.KeyIDs(), func(id string) bool { return cluster.Keys[id] == public.Keys[id] })
	return wrong, foreign
}

// KeyIDs returns the IDs of the keys, sorted.
func (d *Documents) KeyIDs() []string { return slices.Sorted(maps.Keys(d.Keys)) }

// Public reports whether the issuer is an https URL whose host is not internal to the
// cluster.
func Public(issuer string) bool {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" {
		return false
	}
	host := strings.TrimSuffix(u.Hostname(), ".")
	if address, err := netip.ParseAddr(host); err == nil {
		return !address.IsPrivate() && !address.IsLoopback() && !address.IsLinkLocalUnicast()
	}
	return strings.Contains(host, ".") && !localHost.MatchString(host)
}

var localHost = regexp.MustCompile(`\.(svc|local|internal|localhost)$`)
