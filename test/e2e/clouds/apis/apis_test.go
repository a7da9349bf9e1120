// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	organization = "00000000-0000-0000-0000-000000000000"
	account      = "example-production"
	examples     = "../../../../examples/providers"
)

// api is an API with a request for a credential.
type api struct {
	audience, url, body string // JWT in the body stands for the token
	identity            string // in the journal
	// The codes for a token with a bad signature, for another audience, and of another
	// subject.
	signature, forAudience, ofSubject string
}

func apis() map[string]api {
	return map[string]api{
		journal.Anthropic: {
			"https://api.anthropic.com", "https://api.anthropic.com/v1/oauth/token",
			`{"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "JWT", "federation_rule_id": "fdrl_1", "organization_id": "` + organization + `"}`,
			"fdrl_1", "invalid_grant", "invalid_grant", "invalid_grant",
		},
		journal.OpenAI: {
			"https://api.openai.com/v1", "https://auth.openai.com/oauth/token",
			`{"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "subject_token": "JWT", "identity_provider_id": "idp-0123456789", "service_account_id": "sa-1"}`,
			"sa-1", "invalid_subject_token", "invalid_subject_token", "access_denied",
		},
		journal.Snowflake: {
			"snowflakecomputing.com", "https://" + account + ".snowflakecomputing.com/session/v1/login-request",
			`{"data": {"ACCOUNT_NAME": "` + account + `", "AUTHENTICATOR": "WORKLOAD_IDENTITY", "PROVIDER": "OIDC", "TOKEN": "JWT"}}`,
			"APP", "390100", "390100", "390100",
		},
	}
}

// registered returns a claim in the text of lanyard trust for a ready-made provider.
func registered(t *testing.T, name, claim string) string {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(examples, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := settings.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	definition := parsed.Providers[0]
	token := cloud.Token{Issuer: issuertest.URL, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "cart"}}, Audience: definition.DefaultAudience, Values: annotations.Values{"user": "APP", "service-account-id": "sa-1"}}
	trusted, err := cloud.NewCustom(&token, definition)
	if err != nil {
		t.Fatal(err)
	}
	text := trusted.Text("shell", "serviceaccount")
	found := regexp.MustCompile(`(?i)\b` + claim + `(?: URL|_list)?(?:: +| = \(?')([^\s']+)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("got %s, want the %s", text, claim)
	}
	return found[1]
}

// config returns the trust in the ServiceAccount of the tokens, as lanyard trust prints
// it.
func config(t *testing.T) trust.Trust {
	t.Helper()
	of := func(name string) func(claim string) string {
		return func(claim string) string { return registered(t, name, claim) }
	}
	anthropic, openai, snowflake := of(journal.Anthropic), of(journal.OpenAI), of(journal.Snowflake)
	return trust.Trust{
		Anthropic: trust.Anthropic{FederationRules: []trust.FederationRule{{
			ID: "fdrl_1", OrganizationID: organization,
			Issuer: anthropic("issuer"), Audience: anthropic("audience"), Subject: anthropic("subject"),
		}}},
		OpenAI: trust.OpenAI{IdentityProviders: []trust.IdentityProvider{{
			ID: "idp-0123456789", Issuer: openai("issuer"), Audience: openai("audience"),
			Mappings: []trust.ServiceAccountMapping{{Subject: openai("sub"), ServiceAccountID: "sa-1"}},
		}}},
		Snowflake: trust.Snowflake{Account: account, Users: []trust.SnowflakeUser{{Name: "APP", WorkloadIdentity: trust.WorkloadIdentity{
			Type: "OIDC", Issuer: snowflake("issuer"), Subject: snowflake("subject"), OIDCAudienceList: []string{snowflake("oidc_audience")},
		}}}},
	}
}

func TestExchange(t *testing.T) {
	t.Parallel()
	for name, a := range apis() {
		expired := map[string]any{"exp": time.Now().Add(-time.Second).Unix()}
		for sentence, test := range map[string]struct {
			token         issuertest.Case
			change        *strings.Replacer // of the body
			code, message string            // "" for a credential
		}{
			"a token that is trusted":      {token: issuertest.Case{Audience: a.audience}},
			"another audience":             {issuertest.Case{Audience: "somebody-else"}, nil, a.forAudience, "audience"},
			"another subject":              {issuertest.Case{Audience: a.audience, Claims: map[string]any{"sub": "system:serviceaccount:shop:other"}}, nil, a.ofSubject, "subject"},
			"a key of somebody else":       {issuertest.Case{Audience: a.audience, OtherKey: true}, nil, a.signature, "signature"},
			"keys that cannot be read":     {issuertest.Case{Audience: a.audience, Down: true}, nil, a.signature, "signature"},
			"another issuer":               {issuertest.Case{Audience: a.audience, Claims: map[string]any{"iss": "https://example.test"}}, nil, a.signature, "issuer"},
			"an expired token":             {issuertest.Case{Audience: a.audience, Claims: expired}, nil, a.signature, "time"},
			"an unknown rule":              {issuertest.Case{Audience: a.audience}, strings.NewReplacer("fdrl_1", "fdrl_2", "idp-0123456789", "idp-2", account, "other"), "", "not"},
			"another organization":         {issuertest.Case{Audience: a.audience}, strings.NewReplacer(organization, "x", "sa-1", "sa-2", "OIDC", "AWS"), "", "not"},
			"a request that is incomplete": {issuertest.Case{Audience: a.audience}, strings.NewReplacer("JWT", "", "WORKLOAD_IDENTITY", ""), "", "want"},
		} {
			t.Run(name+" with "+sentence, func(t *testing.T) {
				t.Parallel()
				cluster, token := test.token.Issue(t)
				body := a.body
				if test.change != nil {
					body = test.change.Replace(body)
				}
				entry := ask(t, cluster, a.url, strings.ReplaceAll(body, "JWT", token))
				granted := test.message == ""
				if entry.Cloud != name || granted != (entry.Code == "") || granted != (entry.Credential != "") || !strings.Contains(entry.Message, test.message) {
					t.Errorf("got entry %+v, want %+v", entry, test)
				}
				if test.code != "" && entry.Code != test.code || granted && entry.Identity != a.identity {
					t.Errorf("got code %q and identity %q, want %q and %q", entry.Code, entry.Identity, test.code, a.identity)
				}
			})
		}
	}
}

// ask sends a request, and returns the entry of the journal, which must agree with the
// response.
func ask(t *testing.T, cluster *issuertest.Cluster, url, body string) journal.Entry {
	t.Helper()
	recorder := journaltest.New()
	clouds, err := emulator.New(config(t), cluster.Issuer, recorder.Journal)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	clouds.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))
	var response struct {
		Token, AccessToken, Error, Code string
		Data                            struct{ Token string }
	}
	text := strings.ReplaceAll(w.Body.String(), "access_token", "accessToken")
	if err := json.Unmarshal([]byte(text), &response); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	entry := recorder.Last(t)
	if entry.Status != w.Code || entry.Code != response.Error+response.Code {
		t.Errorf("got %d %s and entry %+v, want the same", w.Code, w.Body, entry)
	}
	if credential := response.AccessToken + response.Data.Token; credential != "" && entry.Credential != journal.Digest(credential) {
		t.Errorf("got a credential that entry %+v does not have", entry)
	}
	return entry
}
