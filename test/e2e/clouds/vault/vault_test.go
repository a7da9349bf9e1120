// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package vault_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/vault"
)

func config() trust.Vault {
	role := trust.VaultRole{Name: "cart", BoundAudiences: []string{"vault"}, BoundSubject: issuertest.Subject, TokenPolicies: []string{"cart"}}
	return trust.Vault{AuthMethods: []trust.AuthMethod{
		{Path: "production", BoundIssuer: issuertest.URL, Roles: []trust.VaultRole{role}},
		{Path: "elsewhere", BoundIssuer: "https://nobody.test", Roles: []trust.VaultRole{role}},
	}}
}

// call is a login.
type call struct {
	audience, path, role string
	claims               map[string]any
	otherKey, down       bool
	want                 string // the error, "" for a credential
}

func TestLogin(t *testing.T) {
	t.Parallel()
	const signature = "error validating token: error verifying token signature: "
	for sentence, c := range map[string]call{
		"a token that is trusted":  {"vault", "production", "cart", nil, false, false, ""},
		"another audience":         {"somebody-else", "production", "cart", nil, false, false, "error validating token: invalid audience (aud) claim: audience claim does not match any expected audience"},
		"another ServiceAccount":   {"vault", "production", "cart", map[string]any{"sub": "system:serviceaccount:shop:other"}, false, false, "error validating token: invalid subject (sub) claim"},
		"another issuer":           {"vault", "elsewhere", "cart", nil, false, false, "error validating token: invalid issuer (iss) claim"},
		"an expired token":         {"vault", "production", "cart", map[string]any{"exp": time.Now().Add(-time.Second).Unix()}, false, false, "error validating token: invalid expiration time (exp) claim: token is expired"},
		"a token of the future":    {"vault", "production", "cart", map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}, false, false, "error validating token: invalid not before (nbf) claim: token not yet valid"},
		"a key of somebody else":   {"vault", "production", "cart", nil, true, false, signature + "no known key successfully validated the token signature"},
		"keys that cannot be read": {"vault", "production", "cart", nil, false, true, signature + "fetching keys"},
		"an unknown role":          {"vault", "production", "other", nil, false, false, `role "other" could not be found`},
		"an unknown auth method":   {"vault", "jwt", "cart", nil, false, false, "permission denied"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c *call) run(t *testing.T) {
	t.Helper()
	cluster, token := issuertest.Case{Audience: c.audience, Claims: c.claims, OtherKey: c.otherKey, Down: c.down}.Issue(t)
	recorder := journaltest.New()
	server, err := vault.New(config(), cluster.Issuer, recorder.Journal)
	if err != nil {
		t.Fatal(err)
	}
	request, err := json.Marshal(map[string]string{"role": c.role, "jwt": token})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "https://vault.example.com/v1/auth/"+c.path+"/login", strings.NewReader(string(request)))
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	var body struct {
		Errors []string `json:"errors"`
		Auth   struct {
			Token string `json:"client_token"`
		} `json:"auth"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	entry := recorder.Last(t)
	if got := strings.Join(body.Errors, ", "); got != c.want || entry.Message != c.want || !strings.HasPrefix(c.want, entry.Code) || (c.want == "") != (w.Code == http.StatusOK) {
		t.Errorf("got %d %q with entry %+v, want %q", w.Code, got, entry, c.want)
	}
	if entry.Cloud != journal.Vault || entry.Identity != "auth/"+c.path+"/role/"+c.role {
		t.Errorf("got entry %+v", entry)
	}
	if granted := c.want == ""; granted != (body.Auth.Token != "") || granted && entry.Credential != journal.Digest(body.Auth.Token) {
		t.Errorf("got token %q with entry %+v", body.Auth.Token, entry)
	}
}

func TestUnsupportedTrust(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]trust.Vault{
		"a method without an issuer": {AuthMethods: []trust.AuthMethod{{Path: "a"}}},
		"a role without an audience": {AuthMethods: []trust.AuthMethod{{Path: "a", BoundIssuer: "b", Roles: []trust.VaultRole{{Name: "c", BoundSubject: "d"}}}}},
		"a role without a subject":   {AuthMethods: []trust.AuthMethod{{Path: "a", BoundIssuer: "b", Roles: []trust.VaultRole{{Name: "c", BoundAudiences: []string{"d"}}}}}},
	} {
		if _, err := vault.New(c, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "vault: ") {
			t.Errorf("%s: got error %v", sentence, err)
		}
	}
}
