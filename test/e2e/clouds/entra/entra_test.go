// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package entra_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/entra"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	tenant   = "11111111-2222-4333-8444-555555555555"
	client   = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	elsewhat = "aaaaaaaa-bbbb-4ccc-8ddd-000000000000" // trusts another issuer
	nobody   = "aaaaaaaa-bbbb-4ccc-8ddd-111111111111" // trusts no issuer
	audience = "api://AzureADTokenExchange"
	secret   = "a~secret&more"
)

func config() trust.Entra {
	credential := func(issuer, subject, audience string) trust.FederatedIdentityCredential {
		return trust.FederatedIdentityCredential{Name: "x", Issuer: issuer, Subject: subject, Audiences: []string{audience}}
	}
	return trust.Entra{Tenants: []trust.Tenant{
		{TenantID: tenant, Applications: []trust.Application{
			{AppID: client, DisplayName: "cart", FederatedIdentityCredentials: []trust.FederatedIdentityCredential{
				credential("https://nobody.test", "system:serviceaccount:shop:from-nobody", audience),
				credential(issuertest.URL, issuertest.Subject, audience),
				credential(issuertest.URL, "system:serviceaccount:shop:other", "other"),
			}, PasswordCredentials: []trust.PasswordCredential{{SecretText: "x"}, {SecretText: secret}}},
			{AppID: elsewhat, FederatedIdentityCredentials: []trust.FederatedIdentityCredential{credential("https://nobody.test", issuertest.Subject, audience)}},
			{AppID: nobody, DisplayName: "lonely"},
		}},
		{TenantID: "contoso.example"},
	}}
}

type fixture struct {
	key     issuertest.Key
	es256   issuertest.Key
	cluster *issuertest.Cluster
	journal *journaltest.Recorder
	entra   http.Handler
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	f := fixture{key: issuertest.RSA(t, "key-1"), es256: issuertest.ECDSA(t, "key-2"), journal: journaltest.New()}
	f.cluster = issuertest.Start(t, f.key, f.es256)
	var err error
	if f.entra, err = entra.New(config(), f.cluster.Issuer, f.journal.Journal); err != nil {
		t.Fatal(err)
	}
	return f
}

// form returns a valid request; the other fields replace the usual ones. Empty
// fields are removed.
func form(assertion string, others map[string]string) url.Values {
	values := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {client}, "scope": {"https://management.azure.com/.default"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {assertion},
	}
	for name, value := range others {
		values.Set(name, value)
		if value == "" {
			values.Del(name)
		}
	}
	return values
}

func (f fixture) call(t testing.TB, path string, values url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://login.microsoftonline.com"+path, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded;charset=utf-8")
	w := httptest.NewRecorder()
	f.entra.ServeHTTP(w, r)
	return w
}

const tokenPath = "/" + tenant + "/oauth2/v2.0/token"

func TestTokenIsGranted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	noAssertion := map[string]string{"client_assertion": "", "client_assertion_type": "", "client_secret": secret}
	tests := map[string]struct {
		path string
		form map[string]string
		// subject is empty if no Kubernetes token was sent.
		subject string
	}{
		"to a federated identity":                   {path: tokenPath, subject: issuertest.Subject},
		"with a trailing slash":                     {path: tokenPath + "/", subject: issuertest.Subject},
		"with a query":                              {path: tokenPath + "?client-request-id=1&x-client-SKU=msal", subject: issuertest.Subject},
		"with additional OpenID scopes":             {path: tokenPath, form: map[string]string{"scope": "https://vault.azure.net/.default openid offline_access profile", "client_info": "1"}, subject: issuertest.Subject},
		"to IDs in upper case":                      {path: strings.ToUpper(tokenPath[:37]) + tokenPath[37:], form: map[string]string{"client_id": strings.ToUpper(client)}, subject: issuertest.Subject},
		"to a client secret":                        {path: tokenPath, form: noAssertion},
		"to a client secret, with a trailing slash": {path: tokenPath + "/", form: noAssertion},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := f.call(t, test.path, form(f.key.Sign(t, issuertest.Claims(audience, nil)), test.form))
			var got struct {
				Type    string `json:"token_type"`
				Expires int    `json:"expires_in"`
				Ext     int    `json:"ext_expires_in"`
				Token   string `json:"access_token"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if w.Code != http.StatusOK || got.Type != "Bearer" || got.Expires != 3599 || got.Ext != 3599 || len(got.Token) < 100 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			entry := f.journal.Last(t)
			if entry.Credential != journal.Digest(got.Token) || entry.Status != 200 || entry.Code != "" || entry.Subject != test.subject ||
				!strings.EqualFold(entry.Identity, client+"@"+tenant) || entry.Cloud != "azure" || entry.Operation != "client_credentials" {
				t.Errorf("got entry %+v", entry)
			}
		})
	}
	if text := f.journal.Text(); strings.Contains(text, secret) {
		t.Error("got the secret in the journal")
	}
}

func TestTokenIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := time.Now()
	const record = "No matching federated identity record found for presented assertion "
	tests := map[string]struct {
		path    string // default: tokenPath
		token   string // default: a token with the claims
		claims  map[string]any
		form    map[string]string
		status  int
		name    string
		code    int
		message string
	}{
		"an issuer that another application trusts": {form: map[string]string{"client_id": elsewhat},
			status: 401, name: "invalid_client", code: 700211, message: record + "issuer '" + issuertest.URL + "'."},
		"another issuer": {claims: map[string]any{"iss": "https://else.test"},
			status: 401, name: "invalid_client", code: 700211, message: record + "issuer 'https://else.test'."},
		"the issuer with a trailing slash": {claims: map[string]any{"iss": issuertest.URL + "/"},
			status: 401, name: "invalid_client", code: 700211, message: record + "issuer '" + issuertest.URL + "/'."},
		"a trusted issuer that is not the cluster": {claims: map[string]any{"iss": "https://nobody.test"},
			status: 400, name: "invalid_request", code: 90061, message: "Request to External OIDC endpoint failed."},
		"a pod of another ServiceAccount": {claims: map[string]any{"sub": "system:serviceaccount:shop:default"},
			status: 401, name: "invalid_client", code: 700213, message: record + "subject 'system:serviceaccount:shop:default'."},
		"a subject that is trusted for another issuer": {claims: map[string]any{"sub": "system:serviceaccount:shop:from-nobody"},
			status: 401, name: "invalid_client", code: 700213, message: record + "subject 'system:serviceaccount:shop:from-nobody'."},
		"the subject in upper case": {claims: map[string]any{"sub": "system:serviceaccount:shop:CART"},
			status: 401, name: "invalid_client", code: 7002138, message: record + "subject 'system:serviceaccount:shop:CART'. The subject matches with case-insensitive comparison, but not with case-sensitive comparison."},
		"another audience": {claims: map[string]any{"aud": []string{"sts.amazonaws.com"}},
			status: 401, name: "invalid_client", code: 700212, message: record + "audience 'sts.amazonaws.com'."},
		"the audience in lower case": {claims: map[string]any{"aud": []string{strings.ToLower(audience)}},
			status: 401, name: "invalid_client", code: 700212, message: record + "audience 'api://azureadtokenexchange'."},
		"an audience that is trusted for another subject": {claims: map[string]any{"aud": []string{"other"}},
			status: 401, name: "invalid_client", code: 700212, message: record + "audience 'other'."},
		"two audiences": {claims: map[string]any{"aud": []string{audience, "x"}},
			status: 401, name: "invalid_client", code: 700212, message: record + "audience '" + audience + ",x'."},
		"no federated credential": {form: map[string]string{"client_id": nobody},
			status: 401, name: "invalid_client", code: 70025, message: "The client '" + nobody + "'(lonely) has no configured federated identity credentials."},
		"an expired token": {claims: map[string]any{"nbf": 1000, "exp": 2000},
			status: 401, name: "invalid_client", code: 700024, message: "assertion valid from 1970-01-01T00:16:40.0000000Z, expiry time of assertion 1970-01-01T00:33:20.0000000Z."},
		"a token that is not valid yet": {claims: map[string]any{"nbf": now.Add(time.Hour).Unix()},
			status: 401, name: "invalid_client", code: 700024, message: "Client assertion is not within its valid time range."},
		"the signature of another key": {token: issuertest.RSA(t, "key-1").Sign(t, issuertest.Claims(audience, nil)),
			status: 401, name: "invalid_client", code: 700027, message: "Client assertion contains an invalid signature."},
		"a key that the cluster does not have": {token: issuertest.RSA(t, "key-9").Sign(t, issuertest.Claims(audience, nil)),
			status: 401, name: "invalid_client", code: 7000272, message: "The certificate with identifier key-9"},
		"another algorithm": {token: f.es256.Sign(t, issuertest.Claims(audience, nil)),
			status: 400, name: "invalid_request", code: 5002738, message: "Invalid JWT token. 'ES256' is not a supported signature algorithm."},
		"not a JWT": {token: "abc",
			status: 400, name: "invalid_request", code: 50027, message: "JWT token is invalid or malformed."},
		"another tenant": {path: "/22222222-2222-4333-8444-555555555555/oauth2/v2.0/token",
			status: 400, name: "invalid_request", code: 90002, message: "Tenant '22222222-2222-4333-8444-555555555555' not found."},
		"another client": {form: map[string]string{"client_id": "cccccccc-bbbb-4ccc-8ddd-eeeeeeeeeeee"},
			status: 400, name: "unauthorized_client", code: 700016, message: "Application with identifier 'cccccccc-bbbb-4ccc-8ddd-eeeeeeeeeeee' was not found in the directory '" + tenant + "'."},
		"a client of another tenant": {path: "/contoso.example/oauth2/v2.0/token",
			status: 400, name: "unauthorized_client", code: 700016, message: "Application with identifier '" + client + "' was not found in the directory 'contoso.example'."},
		"another secret": {form: map[string]string{"client_assertion": "", "client_secret": "guess"},
			status: 401, name: "invalid_client", code: 7000215, message: "Invalid client secret provided."},
		"a secret for a client without secrets": {form: map[string]string{"client_assertion": "", "client_secret": secret, "client_id": nobody},
			status: 401, name: "invalid_client", code: 7000215, message: "for a secret added to app '" + nobody + "'."},
		"a malformed assertion with the right secret": {token: "abc", form: map[string]string{"client_secret": secret},
			status: 400, name: "invalid_request", code: 50027, message: "JWT token"},
		"neither assertion nor secret": {form: map[string]string{"client_assertion": ""},
			status: 401, name: "invalid_client", code: 7000218, message: "'client_assertion' or 'client_secret'"},
		"no assertion type": {form: map[string]string{"client_assertion_type": ""},
			status: 400, name: "invalid_request", code: 900144, message: "The request body must contain the following parameter: 'client_assertion_type'."},
		"another assertion type": {form: map[string]string{"client_assertion_type": "saml"},
			status: 400, name: "invalid_request", code: 9002313, message: "Invalid request."},
		"no grant type": {form: map[string]string{"grant_type": ""},
			status: 400, name: "invalid_request", code: 900144, message: "The request body must contain the following parameter: 'grant_type'."},
		"no client": {form: map[string]string{"client_id": ""},
			status: 400, name: "invalid_request", code: 900144, message: "'client_id'"},
		"no scope": {form: map[string]string{"scope": ""},
			status: 400, name: "invalid_request", code: 900144, message: "'scope'"},
		"another grant": {form: map[string]string{"grant_type": "password"},
			status: 400, name: "unsupported_grant_type", code: 70003, message: "'password'"},
		"a scope of a single permission": {form: map[string]string{"scope": "https://management.azure.com/user_impersonation"},
			status: 400, name: "invalid_scope", code: 1002012, message: "The provided value for scope https://management.azure.com/user_impersonation is not valid."},
		"a scope without a resource": {form: map[string]string{"scope": "/.default"},
			status: 400, name: "invalid_scope", code: 1002012, message: "not valid"},
		"scopes of two resources": {form: map[string]string{"scope": "https://a.test/.default https://b.test/.default"},
			status: 400, name: "invalid_scope", code: 70011, message: "not valid"},
		"only OpenID scopes": {form: map[string]string{"scope": "openid profile"},
			status: 400, name: "invalid_scope", code: 70011, message: "not valid"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			token := test.token
			if token == "" {
				token = f.key.Sign(t, issuertest.Claims(audience, test.claims))
			}
			path := test.path
			if path == "" {
				path = tokenPath
			}
			w := f.call(t, path, form(token, test.form))
			var got struct {
				Error       string `json:"error"`
				Description string `json:"error_description"`
				Codes       []int  `json:"error_codes"`
				Timestamp   string `json:"timestamp"`
				Trace       string `json:"trace_id"`
				Correlation string `json:"correlation_id"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			code := fmt.Sprintf("AADSTS%d", test.code)
			if w.Code != test.status || got.Error != test.name || !slices.Equal(got.Codes, []int{test.code}) ||
				!strings.HasPrefix(got.Description, code+": ") || !strings.Contains(got.Description, test.message) {
				t.Errorf("got %d %+v, want %d %s %d %q", w.Code, got, test.status, test.name, test.code, test.message)
			}
			if want := fmt.Sprintf(" Trace ID: %s Correlation ID: %s Timestamp: %s", got.Trace, got.Correlation, got.Timestamp); !strings.HasSuffix(got.Description, want) {
				t.Errorf("got description %q, want it to end with %q", got.Description, want)
			}
			entry := f.journal.Last(t)
			if entry.Status != test.status || entry.Code != code || !strings.Contains(entry.Message, test.message) || entry.Credential != "" {
				t.Errorf("got entry %+v", entry)
			}
			if len(token) > 10 && (strings.Contains(f.journal.Text(), token) || strings.Contains(w.Body.String(), token)) {
				t.Error("got the token in the journal or in the response")
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const base = "https://login.microsoftonline.com/" + tenant
	tests := map[string]struct {
		path   string
		status int
		want   map[string]string
	}{
		"of the instance": {
			path:   "/common/discovery/instance?api-version=1.1&authorization_endpoint=https%3A%2F%2Flogin.microsoftonline.com%2F" + tenant + "%2Foauth2%2Fv2.0%2Fauthorize",
			status: 200, want: map[string]string{"tenant_discovery_endpoint": base + "/v2.0/.well-known/openid-configuration"}},
		"of the instance, without a parameter": {path: "/common/discovery/instance", status: 400, want: map[string]string{"error": "invalid_request"}},
		"of the tenant": {path: "/" + tenant + "/v2.0/.well-known/openid-configuration?", status: 200, want: map[string]string{
			"issuer": base + "/v2.0", "token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize"}},
		"of another tenant": {path: "/x/v2.0/.well-known/openid-configuration", status: 400, want: map[string]string{"error": "invalid_tenant"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			f.entra.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://login.microsoftonline.com"+test.path, nil))
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			for key, want := range test.want {
				if w.Code != test.status || got[key] != want {
					t.Errorf("got %d and %s %v, want %d and %v", w.Code, key, got[key], test.status, want)
				}
			}
		})
	}
}

func TestClusterUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.cluster.SetDown(true)
	w := f.call(t, tokenPath, form(f.key.Sign(t, issuertest.Claims(audience, nil)), nil))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "AADSTS90061") || f.journal.Errors() == "" {
		t.Errorf("got %d %s and log %q", w.Code, w.Body, f.journal.Errors())
	}
}

func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*trust.Tenant){
		"a tenant without an ID":       func(c *trust.Tenant) { c.TenantID = "" },
		"a duplicate tenant":           func(c *trust.Tenant) { c.TenantID = "CONTOSO.example" },
		"an application without an ID": func(c *trust.Tenant) { c.Applications[0].AppID = "" },
		"a credential with two audiences": func(c *trust.Tenant) {
			c.Applications[0].FederatedIdentityCredentials[0].Audiences = []string{"a", "b"}
		},
		"a credential without a subject": func(c *trust.Tenant) { c.Applications[0].FederatedIdentityCredentials[0].Subject = "" },
		"an empty secret":                func(c *trust.Tenant) { c.Applications[0].PasswordCredentials[0].SecretText = "" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config()
			change(&c.Tenants[0])
			if _, err := entra.New(c, nil, nil); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}

func FuzzForm(f *testing.F) {
	fixture := newFixture(f)
	good := form(fixture.key.Sign(f, issuertest.Claims(audience, nil)), nil).Encode()
	for _, seed := range []string{"", "%", "a=%zz&b", "grant_type=client_credentials", good, good + ";", good[:len(good)/2]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "https://login.microsoftonline.com"+tokenPath, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		fixture.entra.ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) || w.Code != http.StatusOK && (w.Code < 400 || w.Code >= 500) {
			t.Errorf("got %d %q", w.Code, w.Body)
		}
	})
}
