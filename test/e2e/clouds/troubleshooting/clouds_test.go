// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package troubleshooting

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// The identities that the pod asks for.
const (
	issuerName = "kubernetes.default.svc.cluster.local" // issuertest.URL without https://
	providers  = "arn:aws:iam::111122223333:oidc-provider/"
	role       = "arn:aws:iam::111122223333:role/cart"
	tenant     = "00001111-aaaa-2222-bbbb-3333cccc4444"
	client     = "55556666-dddd-7777-eeee-8888ffff9999"
	pool       = "projects/123456789012/locations/global/workloadIdentityPools/clusters"
	provider   = pool + "/providers/production"
	account    = "cart@my-project.iam.gserviceaccount.com"
	platform   = "https://www.googleapis.com/auth/cloud-platform"
)

// attempt is a pod that asks for a credential, with the configuration of its cloud.
// Everything is valid until a cause changes it.
type attempt struct {
	trust trust.Trust
	// audience and claims are those of the pod's token.
	audience string
	claims   map[string]any
	// sign replaces the key of the cluster.
	sign func(published []issuertest.Key) issuertest.Key
	// down makes the issuer's keys unreadable.
	down bool

	role, duration    string // AWS
	tenant, client    string // Azure
	provider, account string // Google
	lookUpProject     bool   // Google
}

func newAttempt(audience string) *attempt {
	return &attempt{
		trust: trustInCart(), audience: audience, claims: map[string]any{},
		role: role, tenant: tenant, client: client, provider: provider, account: account,
	}
}

// trustInCart returns clouds that trust the ServiceAccount cart of the cluster.
func trustInCart() trust.Trust {
	return trust.Trust{
		AWS: trust.AWS{
			OpenIDConnectProviders: []trust.OpenIDConnectProvider{{ARN: providers + issuerName, URL: issuerName, ClientIDList: []string{"sts.amazonaws.com"}}},
			Roles: []trust.Role{{ARN: role, AssumeRolePolicyDocument: trust.Policy{Version: "2012-10-17", Statement: []trust.Statement{{
				Effect: "Allow", Principal: trust.Principal{Federated: trust.Strings{providers + issuerName}}, Action: trust.Strings{"sts:AssumeRoleWithWebIdentity"},
				Condition: map[string]map[string]trust.Strings{"StringEquals": {issuerName + ":aud": {"sts.amazonaws.com"}, issuerName + ":sub": {issuertest.Subject}}},
			}}}}},
		},
		Entra: trust.Entra{Tenants: []trust.Tenant{{TenantID: tenant, Applications: []trust.Application{{AppID: client, FederatedIdentityCredentials: []trust.FederatedIdentityCredential{
			{Name: "cart", Issuer: issuertest.URL, Subject: issuertest.Subject, Audiences: []string{"api://AzureADTokenExchange"}},
		}}}}}},
		Google: trust.Google{
			WorkloadIdentityPoolProviders: []trust.WorkloadIdentityPoolProvider{{Name: provider, OIDC: trust.OIDC{IssuerURI: issuertest.URL}, AttributeMapping: map[string]string{"google.subject": "assertion.sub"}}},
			ServiceAccounts: []trust.ServiceAccount{{Email: account, Policy: trust.IAMPolicy{Bindings: []trust.Binding{
				{Role: "roles/iam.workloadIdentityUser", Members: []string{"principal://iam.googleapis.com/" + pool + "/subject/" + issuertest.Subject}},
			}}}},
		},
	}
}

// answer is the response of a cloud. The code is empty if it grants the credential.
type answer struct{ code, message string }

// ask sends the attempt to the cloud, as its SDK does, and returns the answer.
func (a *attempt) ask(t *testing.T, cloud string) answer {
	t.Helper()
	published := []issuertest.Key{issuertest.RSA(t, "key-1"), issuertest.ECDSA(t, "key-2")}
	cluster := issuertest.Start(t, published...)
	cluster.SetDown(a.down)
	handler, err := emulator.New(a.trust, cluster.Issuer, journaltest.New().Journal)
	if err != nil {
		t.Fatal(err)
	}
	key := published[0]
	if a.sign != nil {
		key = a.sign(published)
	}
	return clouds[cloud].ask(t, handler, a, key.Sign(t, issuertest.Claims(a.audience, a.claims)))
}

// clouds are by their names in causes.
var clouds = map[string]struct {
	audience string
	ask      func(t *testing.T, emulators http.Handler, a *attempt, token string) answer
}{
	"AWS":    {"sts.amazonaws.com", askAWS},
	"Azure":  {"api://AzureADTokenExchange", askEntra},
	"Google": {"https://iam.googleapis.com/" + provider, askGoogle},
}

func askAWS(t *testing.T, emulators http.Handler, a *attempt, token string) answer {
	t.Helper()
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn": {a.role}, "RoleSessionName": {"cart"}, "WebIdentityToken": {token},
	}
	if a.duration != "" {
		form.Set("DurationSeconds", a.duration)
	}
	status, body := send(t, emulators, http.MethodPost, "https://sts.eu-central-1.amazonaws.com/", "", form)
	var got struct {
		Error struct{ Code, Message string }
	}
	decode(t, xml.Unmarshal, body, &got)
	return checked(t, status, answer{got.Error.Code, got.Error.Message})
}

func askEntra(t *testing.T, emulators http.Handler, a *attempt, token string) answer {
	t.Helper()
	status, body := send(t, emulators, http.MethodPost, "https://login.microsoftonline.com/"+a.tenant+"/oauth2/v2.0/token", "", url.Values{
		"grant_type": {"client_credentials"}, "client_id": {a.client}, "scope": {"https://storage.azure.com/.default"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {token},
	})
	var got struct {
		Description string `json:"error_description"`
	}
	decode(t, json.Unmarshal, body, &got)
	code, message, _ := strings.Cut(got.Description, ": ")
	return checked(t, status, answer{code, message})
}

// askGoogle exchanges the token, and impersonates the service account with the
// result.
func askGoogle(t *testing.T, emulators http.Handler, a *attempt, token string) answer {
	t.Helper()
	if a.lookUpProject {
		return askGoogleAPI(t, emulators, http.MethodGet, "https://cloudresourcemanager.googleapis.com/v1/projects/123456789012", token)
	}
	status, body := send(t, emulators, http.MethodPost, "https://sts.googleapis.com/v1/token", "", url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {"//iam.googleapis.com/" + a.provider}, "scope": {platform},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"subject_token":        {token}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"},
	})
	var got struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
		AccessToken string `json:"access_token"`
	}
	decode(t, json.Unmarshal, body, &got)
	if result := checked(t, status, answer{got.Error, got.Description}); result.code != "" {
		return result
	}
	return askGoogleAPI(t, emulators, http.MethodPost, "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+a.account+":generateAccessToken", got.AccessToken)
}

func askGoogleAPI(t *testing.T, emulators http.Handler, method, address, token string) answer {
	t.Helper()
	status, body := send(t, emulators, method, address, token, url.Values{})
	var got struct {
		Error struct{ Status, Message string }
	}
	decode(t, json.Unmarshal, body, &got)
	return checked(t, status, answer{got.Error.Status, got.Error.Message})
}

// send sends the form or, with a token, a request to generateAccessToken.
func send(t *testing.T, emulators http.Handler, method, address, token string, form url.Values) (status int, body []byte) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if token != "" {
		r = httptest.NewRequestWithContext(t.Context(), method, address, strings.NewReader(`{"scope": ["`+platform+`"]}`))
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	emulators.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

func decode(t *testing.T, unmarshal func([]byte, any) error, body []byte, into any) {
	t.Helper()
	if err := unmarshal(body, into); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}

// checked returns the answer after comparing it with the status.
func checked(t *testing.T, status int, got answer) answer {
	t.Helper()
	if (status == http.StatusOK) != (got.code == "") {
		t.Fatalf("got status %d with %+v, want an error code if and only if it is not 200", status, got)
	}
	return got
}
