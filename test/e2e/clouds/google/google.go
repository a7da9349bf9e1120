// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package google emulates Google Cloud for Kubernetes tokens: the Security
// Token Service exchanges a Kubernetes token for a federated access token, and
// the IAM Service Account Credentials API exchanges the latter for a service
// account's access token.
//
// APIs: https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token
// and https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken
package google

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	// iam is the prefix of full resource names.
	iam = "//iam.googleapis.com/"
	// cloudPlatform is the scope for all APIs; iamScope is sufficient for the
	// IAM APIs.
	cloudPlatform = "https://www.googleapis.com/auth/cloud-platform"
	iamScope      = "https://www.googleapis.com/auth/iam"
	contentType   = "application/json; charset=UTF-8"
	// workloadIdentityUser is the role that lets members impersonate a service
	// account.
	workloadIdentityUser = "roles/iam.workloadIdentityUser"
	// namespaceOfToken is the expression for the namespace of a token's ServiceAccount.
	namespaceOfToken = "assertion['kubernetes.io']['namespace']"
)

var (
	providerName = regexp.MustCompile(`^(projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+)/providers/[a-z0-9-]+$`)
	member       = regexp.MustCompile(`^(principal:` + iam + `projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/subject/.+|principalSet:` + iam + `projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/(\*|attribute\.namespace/.+))$`)
)

// Hosts are the hosts of the three APIs that the libraries use.
var Hosts = []string{stsHost, credentialsHost, resourceManagerHost}

const (
	stsHost             = "sts.googleapis.com"
	credentialsHost     = "iamcredentials.googleapis.com"
	resourceManagerHost = "cloudresourcemanager.googleapis.com"
)

// google serves Hosts.
type google struct {
	journal *journal.Journal
	// providers is keyed by name. accounts maps a service account's e-mail
	// address to its members.
	providers map[string]provider
	accounts  map[string][]string

	mu sync.Mutex
	// grants is keyed by the digest of the federated token.
	grants map[string]grant
}

// provider is a compiled workload identity pool provider.
type provider struct {
	// tokens verifies with the keys of the cluster, or with uploaded keys.
	tokens    *issuer.Issuer
	pool      string
	issuer    string
	audiences []string
	// subjectClaim is the claim that google.subject is mapped from.
	subjectClaim string
	// mapsNamespace reports whether attribute.namespace is the namespace of the ServiceAccount.
	mapsNamespace bool
}

// grant describes a federated token.
type grant struct {
	pool    string
	subject string
	// namespace is attribute.namespace, or empty if the provider does not map it.
	namespace string
	scopes    []string
	expires   time.Time
	// token is the exchanged Kubernetes token.
	token issuer.Token
}

// New returns a handler of Hosts with the configured trust. It returns an error if it
// cannot evaluate the configuration exactly as the real service does.
func New(config trust.Google, tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
	g := &google{
		journal:   log,
		providers: map[string]provider{}, accounts: map[string][]string{}, grants: map[string]grant{},
	}
	for _, p := range config.WorkloadIdentityPoolProviders {
		compiled, err := compile(p, tokens)
		if err != nil {
			return nil, fmt.Errorf("google: provider %q: %w", p.Name, err)
		}
		g.providers[p.Name] = compiled
	}
	for _, account := range config.ServiceAccounts {
		members, err := users(account.Policy)
		if err != nil {
			return nil, fmt.Errorf("google: service account %q: %w", account.Email, err)
		}
		g.accounts[account.Email] = members
	}
	if len(g.providers) != len(config.WorkloadIdentityPoolProviders) || len(g.accounts) != len(config.ServiceAccounts) {
		return nil, errors.New("google: got a provider or a service account twice, want no duplicates")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+stsHost+"/v1/token", g.exchange)
	mux.HandleFunc("POST "+credentialsHost+"/v1/projects/-/serviceAccounts/{call}", g.generateAccessToken)
	mux.HandleFunc(resourceManagerHost+"/", denyProject)
	return mux, nil
}

func compile(p trust.WorkloadIdentityPoolProvider, tokens *issuer.Issuer) (provider, error) {
	parts := providerName.FindStringSubmatch(p.Name)
	if parts == nil {
		return provider{}, errors.New("invalid name, want projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER")
	}
	if !strings.HasPrefix(p.OIDC.IssuerURI, "https://") {
		return provider{}, fmt.Errorf("got issuerUri %q, want a URL with https://", p.OIDC.IssuerURI)
	}
	if p.AttributeCondition != "" {
		return provider{}, fmt.Errorf("attributeCondition %q: conditions are not supported", p.AttributeCondition)
	}
	claim, ok := strings.CutPrefix(p.AttributeMapping["google.subject"], "assertion.")
	mapped := 1
	mapsNamespace := p.AttributeMapping["attribute.namespace"] == namespaceOfToken
	if mapsNamespace {
		mapped++
	}
	if len(p.AttributeMapping) != mapped || !ok || !regexp.MustCompile(`^\w+$`).MatchString(claim) {
		return provider{}, fmt.Errorf("got attributeMapping %v, want google.subject with the value assertion.CLAIM, and perhaps attribute.namespace with the value %s: other attributes and expressions are not supported", p.AttributeMapping, namespaceOfToken)
	}
	audiences := p.OIDC.AllowedAudiences
	if len(audiences) == 0 {
		audiences = []string{iam + p.Name, "https:" + iam + p.Name}
	}
	if p.OIDC.JWKSJSON != "" {
		var err error
		if tokens, err = issuer.Uploaded(p.OIDC.IssuerURI, p.OIDC.JWKSJSON); err != nil {
			return provider{}, fmt.Errorf("jwksJson: %w", err)
		}
	}
	return provider{tokens: tokens, pool: parts[1], issuer: p.OIDC.IssuerURI, audiences: audiences, subjectClaim: claim, mapsNamespace: mapsNamespace}, nil
}

// users returns the members that may impersonate the service account with the
// policy.
func users(policy trust.IAMPolicy) ([]string, error) {
	var members []string
	for _, binding := range policy.Bindings {
		if binding.Role != workloadIdentityUser {
			return nil, fmt.Errorf("got role %q, want %s: other roles are not supported", binding.Role, workloadIdentityUser)
		}
		for _, m := range binding.Members {
			if !member.MatchString(m) {
				return nil, fmt.Errorf("got member %q, want a principal:// with a subject, or a principalSet:// of a whole pool or of attribute.namespace: other members are not supported", m)
			}
		}
		members = append(members, binding.Members...)
	}
	return members, nil
}

// principal returns IAM's name for the identity of a federated token.
func (g grant) principal() string {
	return "principal:" + iam + g.pool + "/subject/" + g.subject
}

// isOneOf reports whether the members contain the identity, or a set that it is in: all identities
// of the pool, or those of its namespace.
func (g grant) isOneOf(members []string) bool {
	set := "principalSet:" + iam + g.pool
	return slices.Contains(members, g.principal()) || slices.Contains(members, set+"/*") ||
		g.namespace != "" && slices.Contains(members, set+"/attribute.namespace/"+g.namespace)
}

// accessToken returns a new opaque token.
func accessToken() string {
	return "ya29." + rand.Text() + rand.Text() + rand.Text() + rand.Text()
}

// keep stores a federated token until it expires.
func (g *google) keep(federated string, granted grant, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.grants, func(_ string, old grant) bool { return !now.Before(old.expires) })
	g.grants[journal.Digest(federated)] = granted
}

// find returns the grant of a federated token.
func (g *google) find(federated string, now time.Time) (grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found, ok := g.grants[journal.Digest(federated)]
	return found, ok && now.Before(found.expires)
}

// send sends a response with the header of Google's APIs.
func (g *google) send(w http.ResponseWriter, r *http.Request, response journal.Response) {
	response.Header = http.Header{"Content-Type": {contentType}, "Cache-Control": {"private"}}
	g.journal.Send(w, r, response)
}
