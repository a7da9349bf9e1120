// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package alibaba_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/alibaba"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	provider = "acs:ram::1234567890123456:oidc-provider/cluster"
	role     = "acs:ram::1234567890123456:role/cart"
	audience = "sts.aliyuncs.com"
)

func config() trust.Alibaba {
	return trust.Alibaba{
		OIDCProviders: []trust.AlibabaOIDCProvider{
			{ARN: provider, IssuerURL: issuertest.URL, ClientIDs: []string{audience, "other"}},
			{ARN: provider + "-2", IssuerURL: "https://nobody.test", ClientIDs: []string{audience}},
		},
		Roles: []trust.AlibabaRole{{ARN: role, AssumeRolePolicyDocument: policy(statement())}},
	}
}

func policy(statements ...trust.Statement) trust.Policy {
	return trust.Policy{Version: "1", Statement: statements}
}

func statement() trust.Statement {
	return trust.Statement{
		Effect: "Allow", Action: trust.Strings{"sts:AssumeRole"}, Principal: trust.Principal{Federated: trust.Strings{provider}},
		Condition: map[string]map[string]trust.Strings{"StringEquals": {
			"oidc:iss": {issuertest.URL}, "oidc:aud": {audience}, "oidc:sub": {issuertest.Subject},
		}},
	}
}

// call is a request, with the answer that a token is for.
type call struct {
	audience string
	claims   map[string]any
	action   string
	role     string
	provider string
	token    string // replaces the token
	otherKey bool   // signs with a key that is not published
	down     bool
	want     string // the code, "" for a credential
	status   int
	message  string
}

func newCall() call {
	return call{audience: audience, action: "AssumeRoleWithOIDC", role: role, provider: provider, status: http.StatusOK}
}

func TestAssumeRoleWithOIDC(t *testing.T) {
	t.Parallel()
	failed := func(c call, status int, code, message string) call {
		c.status, c.want, c.message = status, code, message
		return c
	}
	change := func(change func(*call)) call {
		c := newCall()
		change(&c)
		return c
	}
	for sentence, c := range map[string]call{
		"a token that is trusted":                  newCall(),
		"another action":                           failed(change(func(c *call) { c.action = "AssumeRole" }), 404, "InvalidAction.NotFound", "Specified api is not found, please check your url and method."),
		"text that is no token":                    failed(change(func(c *call) { c.token = "x" }), 401, "AuthenticationFail.OIDCToken.Invalid", "The Jwt content is invalid that cannot be recognized."),
		"an unknown provider":                      failed(change(func(c *call) { c.provider += "-3" }), 401, "AuthenticationFail.NoPermission", "No such OIDC Provider registered."),
		"a provider of another issuer":             failed(change(func(c *call) { c.provider += "-2" }), 401, "AuthenticationFail.NoPermission", "No such OIDC Provider registered."),
		"an expired token":                         failed(change(func(c *call) { c.claims = map[string]any{"exp": time.Now().Add(-time.Second).Unix()} }), 401, "AuthenticationFail.OIDCToken.Expired", "This JsonWebToken is expired."),
		"a key of somebody else":                   failed(change(func(c *call) { c.otherKey = true }), 401, "AuthenticationFail.OIDCToken.InvalidSignature", "OIDC token validate failed: invalid signature."),
		"keys that cannot be read":                 failed(change(func(c *call) { c.down = true }), 500, "InternalError", "The request processing has failed due to some unknown error."),
		"an audience that no client has":           failed(change(func(c *call) { c.audience = "somebody-else" }), 401, "AuthenticationFail.OIDCToken.AudienceNotMatch", "Invalid audience."),
		"an audience that the role does not trust": failed(change(func(c *call) { c.audience = "other" }), 401, "AuthenticationFail.NoPermission", "There is no permission"),
		"another ServiceAccount":                   failed(change(func(c *call) { c.claims = map[string]any{"sub": "system:serviceaccount:shop:other"} }), 401, "AuthenticationFail.NoPermission", "There is no permission"),
		"an unknown role":                          failed(change(func(c *call) { c.role += "-2" }), 401, "AuthenticationFail.NoPermission", "There is no permission"),
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
	sts, err := alibaba.New(config(), cluster.Issuer, recorder.Journal)
	if err != nil {
		t.Fatal(err)
	}
	if c.token != "" {
		token = c.token
	}
	form := url.Values{"RoleArn": {c.role}, "OIDCProviderArn": {c.provider}, "OIDCToken": {token}, "RoleSessionName": {"s"}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://sts.aliyuncs.com/?Version=2015-04-01&Format=JSON&Action="+c.action, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	sts.ServeHTTP(w, r)
	var body struct {
		Code, Message string
		Credentials   struct{ SecurityToken, Expiration string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if w.Code != c.status || body.Code != c.want || body.Message != c.message {
		t.Errorf("got %d %s %q, want %d %s %q", w.Code, body.Code, body.Message, c.status, c.want, c.message)
	}
	entry := recorder.Last(t)
	if entry.Cloud != journal.Alibaba || entry.Status != c.status || entry.Code != c.want || entry.Identity != c.role {
		t.Errorf("got entry %+v", entry)
	}
	if granted := c.status == http.StatusOK; granted != (body.Credentials.SecurityToken != "") || granted && entry.Credential != journal.Digest(body.Credentials.SecurityToken) {
		t.Errorf("got credentials %+v with entry %+v", body.Credentials, entry)
	}
	if strings.Contains(recorder.Text(), token) && c.token == "" {
		t.Error("the journal has the token")
	}
}

func TestUnsupportedTrust(t *testing.T) {
	t.Parallel()
	with := func(change func(*trust.Statement)) trust.Alibaba {
		s, c := statement(), config()
		change(&s)
		c.Roles[0].AssumeRolePolicyDocument = policy(s)
		return c
	}
	for sentence, c := range map[string]trust.Alibaba{
		"a role of AWS":         {Roles: []trust.AlibabaRole{{ARN: "arn:aws:iam::123456789012:role/cart"}}},
		"an issuer without TLS": {OIDCProviders: []trust.AlibabaOIDCProvider{{ARN: provider, IssuerURL: "http://a.test"}}},
		"a denial":              with(func(s *trust.Statement) { s.Effect = "Deny" }),
		"another action":        with(func(s *trust.Statement) { s.Action = trust.Strings{"sts:AssumeRoleWithOIDC"} }),
		"an unknown provider":   with(func(s *trust.Statement) { s.Principal.Federated = trust.Strings{provider + "-3"} }),
		"another operator": with(func(s *trust.Statement) {
			s.Condition = map[string]map[string]trust.Strings{"StringLike": {"oidc:sub": {"*"}}}
		}),
		"another key": with(func(s *trust.Statement) {
			s.Condition = map[string]map[string]trust.Strings{"StringEquals": {"acs:Time": {"x"}}}
		}),
	} {
		if _, err := alibaba.New(c, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "alibaba: ") {
			t.Errorf("%s: got error %v", sentence, err)
		}
	}
}
