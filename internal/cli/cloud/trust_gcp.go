// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/provider"
)

// GCP is the trust configuration of Google Cloud.
type GCP struct {
	// WorkloadIdentityPoolProvider knows the cluster.
	WorkloadIdentityPoolProvider PoolProvider `json:"workloadIdentityPoolProvider"`
	// Principal is the name of the ServiceAccount in Google Cloud. It can have roles
	// itself.
	Principal string `json:"principal"`
	// ServiceAccount is the service account that the principal impersonates; nil for none.
	ServiceAccount *GoogleServiceAccount `json:"serviceAccount,omitempty"`

	token                         Token
	number, pool, provider, known string // parts of the provider's name; the project if known
}

// PoolProvider is a workload identity pool provider in the form of the IAM API.
type PoolProvider struct {
	// Name is projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER.
	Name string `json:"name"`
	OIDC OIDC   `json:"oidc"`
	// AttributeMapping maps the subject of a token to the principal.
	AttributeMapping map[string]string `json:"attributeMapping"`
}

// OIDC is the issuer of a PoolProvider.
type OIDC struct {
	IssuerURI string `json:"issuerUri"`
	// AllowedAudiences is nil if the token has the audience that Google expects.
	AllowedAudiences []string `json:"allowedAudiences,omitempty"`
	// JWKSJSON has the public keys if Google cannot read them from the issuer.
	JWKSJSON string `json:"jwksJson,omitempty"`
}

// GoogleServiceAccount is a service account of Google with its allow policy.
type GoogleServiceAccount struct {
	Email  string    `json:"email"`
	Policy IAMPolicy `json:"policy"`
}

// IAMPolicy is an allow policy.
type IAMPolicy struct {
	Bindings []Binding `json:"bindings"`
}

// Binding grants a role to members.
type Binding struct {
	Role    string   `json:"role"`
	Members []string `json:"members"`
}

// GCPOptions describe the resources in Google Cloud.
type GCPOptions struct {
	// Provider is the name of the workload identity pool provider:
	// projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER.
	Provider string
	// ServiceAccount is the e-mail of a service account to impersonate; empty for
	// none.
	ServiceAccount string
	// Project is the ID of the pool's project. If it is empty, the shell looks it up.
	Project string
	// JWKS are the cluster's public keys, to be uploaded. If empty, Google reads them
	// from the issuer.
	JWKS string
}

// workloadIdentityUser is the role that lets a principal impersonate a service
// account.
const workloadIdentityUser = "roles/iam.workloadIdentityUser"

// maxGoogleSubject is the length of the longest subject in bytes.
const maxGoogleSubject = 127

// NewGCP returns the trust configuration of Google Cloud.
func NewGCP(token Token, o GCPOptions) (*GCP, error) {
	if err := token.check(); err != nil {
		return nil, err
	}
	number, pool, name, ok := provider.GCPProviderParts(o.Provider)
	if !ok {
		return nil, fmt.Errorf("workload identity provider: got %q, want projects/NUMBER/locations/global/"+
			"workloadIdentityPools/POOL/providers/PROVIDER", o.Provider)
	}
	if len(token.Subject()) > maxGoogleSubject {
		return nil, fmt.Errorf("subject %q: got %d bytes, want at most %d; Google Cloud accepts no longer one", token.Subject(), len(token.Subject()), maxGoogleSubject)
	}
	g := &GCP{
		WorkloadIdentityPoolProvider: PoolProvider{
			Name:             o.Provider,
			OIDC:             OIDC{IssuerURI: token.Issuer, JWKSJSON: o.JWKS},
			AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
		},
		Principal: "principal://iam.googleapis.com/" + strings.TrimSuffix(o.Provider, "/providers/"+name) + "/subject/" + token.Subject(),
		token:     token, number: number, pool: pool, provider: name, known: o.Project,
	}
	if token.Audience != "https://iam.googleapis.com/"+o.Provider && token.Audience != "//iam.googleapis.com/"+o.Provider {
		g.WorkloadIdentityPoolProvider.OIDC.AllowedAudiences = []string{token.Audience}
	}
	if o.ServiceAccount != "" {
		g.ServiceAccount = &GoogleServiceAccount{Email: o.ServiceAccount, Policy: IAMPolicy{
			Bindings: []Binding{{Role: workloadIdentityUser, Members: []string{g.Principal}}},
		}}
	}
	return g, nil
}

// Shell returns the commands of gcloud.
func (g *GCP) Shell() Script {
	oidc := g.WorkloadIdentityPoolProvider.OIDC
	project := "PROJECT=" + Quote(g.known)
	if g.known == "" {
		project = "PROJECT=$(gcloud projects describe " + g.number + " --format 'value(projectId)')"
	}
	keys, more := "", ""
	if oidc.JWKSJSON != "" {
		keys, more = File("jwks.json", oidc.JWKSJSON), " \\\n  --jwk-json-path jwks.json"
	}
	for _, audience := range oidc.AllowedAudiences {
		more += " \\\n  --allowed-audiences " + Quote(audience)
	}
	s := Script{
		Cluster: fmt.Sprintf(`# Once per cluster:
%s
gcloud services enable --project "$PROJECT" \
  iam.googleapis.com sts.googleapis.com iamcredentials.googleapis.com
gcloud iam workload-identity-pools create %[2]s --project "$PROJECT" --location global
%[3]sgcloud iam workload-identity-pools providers create-oidc %[4]s \
  --project "$PROJECT" --location global --workload-identity-pool %[2]s \
  --issuer-uri %[5]s --attribute-mapping google.subject=assertion.sub%[6]s
`, project, g.pool, keys, g.provider, Quote(oidc.IssuerURI), more),
		ServiceAccount: fmt.Sprintf(`# Once per ServiceAccount. Give the roles that it needs to this principal:
PRINCIPAL=%[1]s
# For example: gcloud storage buckets add-iam-policy-binding gs://BUCKET \
#   --role roles/storage.objectViewer --member "$PRINCIPAL"
`, Quote(g.Principal)),
	}
	if a := g.ServiceAccount; a != nil {
		s.ServiceAccount = fmt.Sprintf(`# Once per ServiceAccount:
gcloud iam service-accounts add-iam-policy-binding %s \
  --role %s \
  --member %s
`, Quote(a.Email), workloadIdentityUser, Quote(g.Principal))
	}
	return s
}

// Terraform returns the resources of the provider hashicorp/google.
func (g *GCP) Terraform() Script {
	oidc := g.WorkloadIdentityPoolProvider.OIDC
	var more strings.Builder
	if len(oidc.AllowedAudiences) > 0 {
		fmt.Fprintf(&more, "    allowed_audiences = [%s]\n", literal(oidc.AllowedAudiences[0]))
	}
	if oidc.JWKSJSON != "" {
		fmt.Fprintf(&more, "    jwks_json = %s\n", literal(oidc.JWKSJSON))
	}
	pool := identifier(g.pool)
	member := `"principal://iam.googleapis.com/${google_iam_workload_identity_pool.` + pool + `.name}/subject/` + g.token.Subject() + `"`
	s := Script{
		Cluster: fmt.Sprintf(`# Once per cluster:
resource "google_iam_workload_identity_pool" %[1]q {
  workload_identity_pool_id = %[2]s
}

resource "google_iam_workload_identity_pool_provider" %[3]q {
  workload_identity_pool_id          = google_iam_workload_identity_pool.%[1]s.workload_identity_pool_id
  workload_identity_pool_provider_id = %[4]s
  attribute_mapping = {
    "google.subject" = "assertion.sub"
  }
  oidc {
    issuer_uri = %[5]s
%[6]s  }
}
`, pool, literal(g.pool), identifier(g.provider), literal(g.provider), literal(oidc.IssuerURI), more.String()),
		ServiceAccount: fmt.Sprintf(`# Once per ServiceAccount. Give the roles that it needs to this principal:
locals {
  %s_principal = %s
}
`, g.token.label(), member),
	}
	if a := g.ServiceAccount; a != nil {
		s.ServiceAccount = fmt.Sprintf(`# Once per ServiceAccount:
resource "google_service_account_iam_member" %q {
  service_account_id = %s
  role               = %q
  member             = %s
}
`, g.token.label(), literal("projects/-/serviceAccounts/"+a.Email), workloadIdentityUser, member)
	}
	return s
}
