// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

func TestHostsAreTheProductionNames(t *testing.T) {
	t.Parallel()
	hosts := emulator.Hosts()
	for _, want := range []string{
		"sts.amazonaws.com", "sts.eu-central-1.amazonaws.com", "sts.us-east-1.amazonaws.com", "login.microsoftonline.com",
		"sts.googleapis.com", "iamcredentials.googleapis.com", "cloudresourcemanager.googleapis.com",
	} {
		if !slices.Contains(hosts, want) {
			t.Errorf("got %v, want it to contain %s", hosts, want)
		}
	}
	if !slices.IsSorted(hosts) || len(slices.Compact(slices.Clone(hosts))) != len(hosts) {
		t.Errorf("got %v, want a sorted list without duplicates", hosts)
	}
}

func TestRouting(t *testing.T) {
	t.Parallel()
	cluster, recorder := issuertest.Start(t, issuertest.RSA(t, "key-1")), journaltest.New()
	clouds, err := emulator.New(trust.Trust{}, cluster.Issuer, recorder.Journal)
	if err != nil {
		t.Fatal(err)
	}
	const token = "/v1/token"
	tests := map[string]struct {
		method, host, path string
		status             int
		want               string
	}{
		"AWS":                    {http.MethodPost, "sts.amazonaws.com", "/", 400, "<Code>InvalidAction</Code>"},
		"AWS in a region":        {http.MethodPost, "sts.eu-central-1.amazonaws.com", "/", 400, "<Code>InvalidAction</Code>"},
		"AWS with a port":        {http.MethodPost, "sts.amazonaws.com:443", "/", 400, "<Code>InvalidAction</Code>"},
		"AWS in upper case":      {http.MethodPost, "STS.amazonaws.com", "/", 400, "<Code>InvalidAction</Code>"},
		"Entra":                  {http.MethodPost, "login.microsoftonline.com", "/x/oauth2/v2.0/token", 400, "AADSTS900144"},
		"Google's STS":           {http.MethodPost, "sts.googleapis.com", token, 400, "unsupported_grant_type"},
		"Google's credentials":   {http.MethodPost, "iamcredentials.googleapis.com", "/v1/projects/-/serviceAccounts/x:generateAccessToken", 401, "UNAUTHENTICATED"},
		"Google's projects":      {http.MethodGet, "cloudresourcemanager.googleapis.com", "/v1/projects/1", 403, "PERMISSION_DENIED"},
		"Alibaba Cloud":          {http.MethodPost, "sts.eu-central-1.aliyuncs.com", "/", 404, "InvalidAction.NotFound"},
		"IBM Cloud":              {http.MethodPost, "iam.cloud.ibm.com", "/identity/token", 400, "BXNIM0109E"},
		"Vault":                  {http.MethodPut, "vault.example.com", "/v1/auth/jwt/login", 400, "failed to parse JSON input"},
		"Anthropic":              {http.MethodPost, "api.anthropic.com", "/v1/oauth/token", 400, "invalid_request"},
		"Anthropic's models":     {http.MethodGet, "api.anthropic.com", "/v1/models", 401, "authentication_error"},
		"OpenAI's tokens":        {http.MethodPost, "auth.openai.com", "/oauth/token", 400, "invalid_request"},
		"OpenAI's models":        {http.MethodGet, "api.openai.com", "/v1/models", 401, "authentication_error"},
		"Snowflake":              {http.MethodPost, "example-production.snowflakecomputing.com", "/session/v1/login-request", 200, "390100"},
		"a path of another host": {http.MethodPost, "iamcredentials.googleapis.com", token, 404, ""},
		"another operation":      {http.MethodPost, "iamcredentials.googleapis.com", "/v1/projects/-/serviceAccounts/x:signJwt", 404, ""},
		"another host":           {http.MethodPost, "example.test", token, 421, ""},
		"a subdomain":            {http.MethodPost, "x.sts.googleapis.com", token, 421, ""},
		"an address":             {http.MethodPost, "[::1]:8443", token, 421, ""},
		"the metadata server":    {http.MethodGet, "169.254.169.254", "/latest/meta-data", 421, ""},
		"an unknown region":      {http.MethodPost, "sts.moon-1.amazonaws.com", "/", 421, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), test.method, "https://localhost"+test.path, nil)
			r.Host = test.host
			w := httptest.NewRecorder()
			clouds.ServeHTTP(w, r)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("got %d %s, want %d with %q", w.Code, w.Body, test.status, test.want)
			}
		})
	}
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	cluster, recorder := issuertest.Start(t, issuertest.RSA(t, "key-1")), journaltest.New()
	clouds, err := emulator.New(trust.Trust{}, cluster.Issuer, recorder.Journal)
	if err != nil {
		t.Fatal(err)
	}
	endless := url.Values{"WebIdentityToken": {strings.Repeat("a", 1<<20)}}.Encode()
	for _, target := range []string{"https://sts.amazonaws.com/", "https://login.microsoftonline.com/x/oauth2/v2.0/token", "https://sts.googleapis.com/v1/token", "https://sts.aliyuncs.com/", "https://iam.cloud.ibm.com/identity/token"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(endless))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		clouds.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "malformed") {
			t.Errorf("%s: got %d %s, want the request rejected", target, w.Code, w.Body)
		}
	}
	// Vault reads JSON.
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "https://vault.example.com/v1/auth/jwt/login", strings.NewReader(`{"jwt": "`+strings.Repeat("a", 1<<20)+`"}`))
	w := httptest.NewRecorder()
	clouds.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "failed to parse JSON input") {
		t.Errorf("Vault: got %d %s, want the request rejected", w.Code, w.Body)
	}
	if got := len(recorder.Entries(t)); got != 6 {
		t.Errorf("got %d entries, want one for each request", got)
	}
}

func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]trust.Trust{
		"aws":    {AWS: trust.AWS{Roles: []trust.Role{{ARN: "x"}}}},
		"entra":  {Entra: trust.Entra{Tenants: []trust.Tenant{{}}}},
		"google": {Google: trust.Google{WorkloadIdentityPoolProviders: []trust.WorkloadIdentityPoolProvider{{Name: "x"}}}},

		"alibaba": {Alibaba: trust.Alibaba{Roles: []trust.AlibabaRole{{ARN: "x"}}}},
		"ibm":     {IBM: trust.IBM{TrustedProfiles: []trust.TrustedProfile{{ID: "x"}}}},
		"vault":   {Vault: trust.Vault{AuthMethods: []trust.AuthMethod{{Path: "x"}}}},

		"anthropic": {Anthropic: trust.Anthropic{FederationRules: []trust.FederationRule{{ID: "fdrl_1"}}}},
		"openai":    {OpenAI: trust.OpenAI{IdentityProviders: []trust.IdentityProvider{{ID: "idp-1"}}}},
		"snowflake": {Snowflake: trust.Snowflake{Users: []trust.SnowflakeUser{{Name: "CART"}}}},
	}
	for name, config := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := emulator.New(config, nil, nil); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
				t.Errorf("got error %v, want an error about %s", err, name)
			}
		})
	}
}
