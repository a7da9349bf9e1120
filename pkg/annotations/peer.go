// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Peer is another program whose annotations on ServiceAccounts Lanyard can translate
// to its own. See Keys.Adopt.
type Peer struct {
	// Name is the peer's in --adopt.
	Name string
	// Program is the peer's for people.
	Program string
	// Provider is the name of the provider that its identities are of.
	Provider string
	// Prefix starts its keys.
	Prefix string
	// Identity lists the keys that ask for an identity. All must have a value.
	Identity []string
	// Others lists the other keys that are read.
	Others []string
	// Requires is the annotation key without the prefix of a default that the cluster
	// must have; empty for none.
	Requires string

	translate func(*peerReader)
}

// Peers returns all peers, in the order of their precedence.
func Peers() []*Peer {
	return []*Peer{
		newPeer(Peer{
			Name: "eks", Program: "amazon-eks-pod-identity-webhook", Provider: "aws", Prefix: "eks.amazonaws.com/", translate: translateEKS,
			Identity: []string{"role-arn"}, Others: []string{"audience", "sts-regional-endpoints", "token-expiration"},
		}),
		newPeer(Peer{
			Name: "azure", Program: "azure-workload-identity", Provider: "azure", Prefix: "azure.workload.identity/", translate: translateAzure,
			Identity: []string{"client-id"}, Others: []string{"tenant-id", "service-account-token-expiration"},
		}),
		newPeer(Peer{
			Name: "gcp", Program: "gcp-workload-identity-federation-webhook", Provider: "gcp", Prefix: "cloud.google.com/", translate: translateGCP,
			Identity: []string{"workload-identity-provider", "service-account-email"},
			Others:   []string{"audience", "token-expiration", "gcloud-run-as-user"},
		}),
		newPeer(Peer{
			Name: "gke", Program: "GKE", Provider: "gcp", Prefix: "iam.gke.io/", translate: translateGKE,
			Identity: []string{"gcp-service-account"}, Requires: "gcp-workload-identity-provider",
		}),
	}
}

// newPeer returns the peer with whole keys.
func newPeer(p Peer) *Peer {
	for _, keys := range [][]string{p.Identity, p.Others} {
		for i := range keys {
			keys[i] = p.Prefix + keys[i]
		}
	}
	return &p
}

// PeersNamed returns the peers of these names, in the order of their precedence.
func PeersNamed(names []string) ([]*Peer, error) {
	var peers []*Peer
	var known []string
	for _, p := range Peers() {
		known = append(known, p.Name)
		if slices.Contains(names, p.Name) {
			peers = append(peers, p)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("got %q, want one or more of %s", name, strings.Join(known, ", "))
		}
	}
	return peers, nil
}

// Keys lists the annotation keys that are read.
func (p *Peer) Keys() []string { return slices.Concat(p.Identity, p.Others) }

// Reads reports whether the annotation key is read.
func (p *Peer) Reads(key string) bool {
	return strings.HasPrefix(key, p.Prefix) && (slices.Contains(p.Identity, key) || slices.Contains(p.Others, key))
}

// Asks reports whether annotations of a ServiceAccount ask the peer for an identity.
func (p *Peer) Asks(values map[string]string) bool {
	return !slices.ContainsFunc(p.Identity, func(key string) bool { return values[key] == "" })
}

// MaxPeerBytes is how much is read of a peer's annotation. It is more than the longest
// value that any of Lanyard's may have: a longer one is then too long as well.
const MaxPeerBytes = 2049

// The paths of the peers' tokens, which programs have in their own settings.
const (
	eksTokenPath = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"
	// azureTokenPath is that of the versions before 1.6. No two versions after it
	// have the same path, and the volumes of those cannot collide with this one.
	azureTokenPath = "/var/run/secrets/azure/tokens/azure-identity-token"
	gcpTokenPath   = "/var/run/secrets/sts.googleapis.com/serviceaccount/token"
)

// translation is what the annotations of a peer are in Lanyard's.
type translation struct {
	// values are by the keys without Lanyard's prefix; none if there is no identity.
	values map[string]string
	// lifetime is that of the tokens in seconds, "" if the peer has none. With strict,
	// it is as the ServiceAccount has it, and may be malformed.
	lifetime string
	strict   bool
	warnings []string
}

// peerReader reads the annotations of one peer into a translation.
type peerReader struct {
	*translation
	prefix   string
	found    map[string]string
	defaults *Defaults
}

func (r *peerReader) get(name string) string { return r.found[r.prefix+name] }

func (r *peerReader) warn(name, format string, values ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf("%s%s: got %q: %s", r.prefix, name, shown(r.get(name)), fmt.Sprintf(format, values...)))
}

// audience translates the audience. An empty one is malformed: the token would be for
// the API server.
func (r *peerReader) audience(key, fallback string) {
	if value, found := r.found[r.prefix+"audience"]; found {
		r.values[key] = value
	} else if fallback != "" && r.defaults.Parameters[key] == "" {
		r.values[key] = fallback
	}
}

// maxLifetime is the default of two peers. They have no upper limit: the kubelet
// replaces a token after a day in any case.
const maxLifetime = MaxTokenExpirationSeconds

// lenientLifetime translates a lifetime for a peer that raises a short one to least.
func (r *peerReader) lenientLifetime(name string, least int64) {
	r.lifetime = strconv.Itoa(maxLifetime)
	value, found := r.found[r.prefix+name]
	if !found {
		return
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		r.lifetime, r.strict = value, true
		return
	}
	if seconds > maxLifetime {
		r.warn(name, "the lifetime of the tokens is %d seconds", maxLifetime)
	}
	r.lifetime = strconv.FormatInt(min(max(seconds, least), maxLifetime), 10)
}

func translateEKS(r *peerReader) {
	role := r.get("role-arn")
	if role == "" {
		return
	}
	r.values["aws-role-arn"], r.values["aws-token-path"] = role, eksTokenPath
	r.audience("aws-audience", "")
	const expiration, regional = "token-expiration", "sts-regional-endpoints"
	r.lenientLifetime(expiration, MinTokenExpirationSeconds)
	if r.strict { // the peer ignores it
		r.warn(expiration, "it is not a number, so the lifetime of the tokens is %d seconds", maxLifetime)
		r.lifetime, r.strict = strconv.Itoa(maxLifetime), false
	}
	if on, err := strconv.ParseBool(r.get(regional)); err == nil && !on {
		r.warn(regional, "it is ignored: the pods get AWS_STS_REGIONAL_ENDPOINTS=regional")
	}
}

func translateAzure(r *peerReader) {
	client := r.get("client-id")
	if client == "" {
		return
	}
	r.values["azure-client-id"], r.values["azure-token-path"] = client, azureTokenPath
	tenant, found := r.found[r.prefix+"tenant-id"]
	if tenant != "" {
		r.values["azure-tenant-id"] = tenant
	} else if found {
		r.warn("tenant-id", "the tenant is the cluster's default")
	}
	// The peer denies the pods if it is malformed.
	r.lifetime = r.get("service-account-token-expiration")
	seconds, err := strconv.ParseInt(r.lifetime, 10, 64)
	r.strict = r.lifetime != "" && (err != nil || ValidateTokenExpirationSeconds(seconds, 3600) != nil)
}

func translateGCP(r *peerReader) {
	const name, email, user = "workload-identity-provider", "service-account-email", "gcloud-run-as-user"
	switch provider, account := r.get(name), r.get(email); {
	case provider == "" && account == "":
		return
	case account == "":
		r.warn(name, "it is ignored without %s%s; for an identity without a service account, use Lanyard's gcp-workload-identity-provider", r.prefix, email)
		return
	case provider == "":
		r.warn(email, "it is ignored without %s%s", r.prefix, name)
		return
	default:
		r.values["gcp-workload-identity-provider"], r.values["gcp-service-account"] = provider, account
	}
	r.values["gcp-token-path"] = gcpTokenPath
	r.audience("gcp-audience", "sts.googleapis.com")
	r.lenientLifetime("token-expiration", 3600)
	if _, found := r.found[r.prefix+user]; found {
		r.warn(user, "it is ignored: Lanyard adds no container that runs gcloud")
	}
}

func translateGKE(r *peerReader) {
	if email := r.get("gcp-service-account"); email != "" {
		r.values["gcp-service-account"] = email
	}
}
