// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/google"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// projectNumber is the number of the page's project, and projectLocation the
// start of the names of its pools.
const (
	projectNumber   = "123456789012"
	projectLocation = "projects/" + projectNumber + "/locations/global/workloadIdentityPools/"
	email           = "shop-cart@my-project.iam.gserviceaccount.com"
)

// gcpTrust is the configuration that a page creates in Google Cloud.
type gcpTrust struct {
	provider, issuer string
	keys             string // uploaded keys, if any
	mapping          string // NAME=VALUE
	audiences        string // allowed audiences, separated by commas
	member           string // with a role of its own, or that impersonates email
	annotations      map[string]string
}

// check compares the page's trust with Google Cloud.
func (g gcpTrust) check(t *testing.T, c cluster) {
	t.Helper()
	identity := identityOf(t, g.annotations)
	token, name := c.token(t, identity.Audience), identity.Values["workload-identity-provider"]
	granted := func() bool {
		attribute, expression, _ := strings.Cut(g.mapping, "=")
		provider := trust.WorkloadIdentityPoolProvider{
			Name: g.provider, OIDC: trust.OIDC{IssuerURI: g.issuer, JWKSJSON: g.keys}, AttributeMapping: map[string]string{attribute: expression},
		}
		if g.audiences != "" {
			provider.OIDC.AllowedAudiences = strings.Split(g.audiences, ",")
		}
		log := journaltest.New()
		cloud, err := google.New(trust.Google{
			WorkloadIdentityPoolProviders: []trust.WorkloadIdentityPoolProvider{provider},
			ServiceAccounts: []trust.ServiceAccount{{Email: email, Policy: trust.IAMPolicy{Bindings: []trust.Binding{
				{Role: "roles/iam.workloadIdentityUser", Members: []string{g.member}},
			}}}},
		}, c.Issuer, log.Journal)
		if err != nil {
			return false
		}
		federated := exchange(t, cloud, name, token)
		if impersonated := identity.Values["service-account"]; federated != "" && impersonated != "" {
			return impersonate(t, cloud, impersonated, federated)
		}
		return federated != "" && log.Last(t).Identity == g.member
	}
	checkTrust(t, granted,
		value{"provider", &g.provider}, value{"issuer", &g.issuer}, value{"attribute mapping", &g.mapping},
		value{"member", &g.member}, value{"provider in the annotation", &name})
}

// exchange returns the federated token for a Kubernetes token, or "" if it is denied.
func exchange(t testing.TB, cloud http.Handler, provider, token string) string {
	t.Helper()
	w := post(t, cloud, "https://sts.googleapis.com/v1/token", url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {"//iam.googleapis.com/" + provider},
		"scope":                {"https://www.googleapis.com/auth/cloud-platform"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"subject_token":        {token}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"},
	})
	var response struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil {
		t.Fatal(err)
	}
	return response.Token
}

// impersonate reports whether the federated token can be exchanged for a token of a service
// account.
func impersonate(t testing.TB, cloud http.Handler, account, federated string) bool {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+account+":generateAccessToken",
		strings.NewReader(`{"scope": ["https://www.googleapis.com/auth/cloud-platform"]}`))
	r.Header.Set("Authorization", "Bearer "+federated)
	w := httptest.NewRecorder()
	cloud.ServeHTTP(w, r)
	return w.Code == http.StatusOK
}

// runGCP returns the run of the page.
func runGCP(t testing.TB, c cluster) run {
	t.Helper()
	return runPage(t, "clouds/gcp.md", c.answers(t, map[string]string{"gcloud projects describe my-project": projectNumber}))
}

// providers returns the providers that the page's two commands create, with and without uploaded
// keys.
func providers(t testing.TB, r run) []gcpTrust {
	t.Helper()
	pool := r.one(t, "gcloud iam workload-identity-pools create")
	var found []gcpTrust
	const create = "gcloud iam workload-identity-pools providers create-oidc"
	for _, created := range r.all(create) {
		if created.flag("workload-identity-pool") != pool[4] || created.flag("location") != "global" || pool.flag("location") != "global" {
			t.Errorf("got %q, want a provider of the pool that was created: %q", created, pool)
		}
		found = append(found, gcpTrust{
			provider: projectLocation + pool[4] + "/providers/" + created[5], issuer: created.flag("issuer-uri"),
			mapping: created.flag("attribute-mapping"), audiences: created.flag("allowed-audiences"),
		})
		if file := created.flag("jwk-json-path"); file != "" {
			found[len(found)-1].keys = r.file(t, file)
		}
	}
	if len(found) != 2 {
		t.Fatalf("got %d calls of %q, want 2", len(found), create)
	}
	if found[0].keys != "" || found[1].keys == "" {
		t.Error("got uploaded keys for the first provider or none for the second, want them for the second only")
	}
	return found
}

func TestGCPShell(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := runGCP(t, c)
	checkGuide(t, "clouds/gcp.md", r)
	annotate, buckets := r.all("kubectl annotate"), r.all("gcloud storage buckets add-iam-policy-binding")
	if len(annotate) != 2 || len(buckets) != 2 {
		t.Fatalf("got %d calls of kubectl annotate and %d for buckets, want 2 of each", len(annotate), len(buckets))
	}
	impersonation := r.one(t, "gcloud iam service-accounts add-iam-policy-binding")
	if impersonation[4] != email || impersonation.flag("role") != "roles/iam.workloadIdentityUser" || buckets[1].flag("member") != "serviceAccount:"+email {
		t.Errorf("got %q and %q, want %s with roles/iam.workloadIdentityUser", impersonation, buckets[1], email)
	}
	for i, name := range []string{"a public issuer", "uploaded keys"} {
		t.Run("as a principal, "+name, func(t *testing.T) {
			direct := providers(t, r)[i]
			direct.member, direct.annotations = buckets[0].flag("member"), annotated(t, annotate[0])
			direct.check(t, c)
		})
		t.Run("by impersonation, "+name, func(t *testing.T) {
			impersonated := providers(t, r)[i]
			impersonated.member, impersonated.annotations = impersonation.flag("member"), annotated(t, annotate[1])
			impersonated.check(t, c)
		})
	}
}

func TestGCPTerraform(t *testing.T) {
	t.Parallel()
	page := evaluate(t, "gcp", attributes{"issuer": cty.StringVal(issuertest.URL)}, func(kind string, a attributes) {
		switch kind {
		case "google_iam_workload_identity_pool":
			a["name"] = cty.StringVal(projectLocation + a.text("workload_identity_pool_id"))
		case "google_iam_workload_identity_pool_provider":
			a["name"] = cty.StringVal(projectLocation + a.text("workload_identity_pool_id") + "/providers/" + a.text("workload_identity_pool_provider_id"))
		case "google_service_account":
			a["name"] = cty.StringVal("projects/my-project/serviceAccounts/" + a.text("account_id") + "@my-project.iam.gserviceaccount.com")
		}
	})
	provider := page.resource(t, "google_iam_workload_identity_pool_provider")
	mapping := provider.texts("attribute_mapping")
	direct := gcpTrust{
		provider: provider.text("name"), issuer: provider.text("oidc", "issuer_uri"),
		mapping:     "google.subject=" + mapping["google.subject"],
		member:      page.resource(t, "google_storage_bucket_iam_member").text("member"),
		annotations: checkAnnotationsResource(t, page),
	}
	if len(mapping) != 1 {
		t.Errorf("got attribute mapping %v, want only google.subject", mapping)
	}
	t.Run("as a principal", func(t *testing.T) { direct.check(t, newCluster(t)) })

	impersonation := page.resource(t, "google_service_account_iam_member")
	if got := impersonation.text("service_account_id"); !strings.HasSuffix(got, "/"+email) || impersonation.text("role") != "roles/iam.workloadIdentityUser" {
		t.Errorf("got %s of %s, want roles/iam.workloadIdentityUser of %s", impersonation.text("role"), got, email)
	}
	t.Run("by impersonation", func(t *testing.T) {
		impersonated := direct
		impersonated.member = impersonation.text("member")
		impersonated.annotations = map[string]string{
			"lanyard.dev/gcp-workload-identity-provider": direct.annotations["lanyard.dev/gcp-workload-identity-provider"],
			"lanyard.dev/gcp-service-account":            email,
		}
		impersonated.check(t, newCluster(t))
	})
}
