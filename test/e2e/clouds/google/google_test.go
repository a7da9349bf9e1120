// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package google_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/google"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	pool      = "projects/123456789/locations/global/workloadIdentityPools/pool"
	provider  = pool + "/providers/cluster"
	narrow    = pool + "/providers/narrow"    // with its own audiences
	elsewhere = pool + "/providers/elsewhere" // with another issuer
	byPod     = pool + "/providers/by-jti"    // maps another claim
	other     = "projects/123456789/locations/global/workloadIdentityPools/other/providers/cluster"
	name      = "//iam.googleapis.com/" + provider
	principal = "principal://iam.googleapis.com/" + pool + "/subject/" + issuertest.Subject
	cart      = "cart@proj.iam.gserviceaccount.com"     // for the subject
	everyone  = "everyone@proj.iam.gserviceaccount.com" // for the pool
	someone   = "someone@proj.iam.gserviceaccount.com"  // for another subject
	platform  = "https://www.googleapis.com/auth/cloud-platform"
)

func config() trust.Google {
	bySubject := map[string]string{"google.subject": "assertion.sub"}
	byNamespace := map[string]string{"google.subject": "assertion.sub", "attribute.namespace": "assertion['kubernetes.io']['namespace']"}
	oidc := trust.OIDC{IssuerURI: issuertest.URL}
	account := func(email, member string) trust.ServiceAccount {
		return trust.ServiceAccount{Email: email, Policy: trust.IAMPolicy{Bindings: []trust.Binding{{Role: "roles/iam.workloadIdentityUser", Members: []string{member}}}}}
	}
	return trust.Google{
		WorkloadIdentityPoolProviders: []trust.WorkloadIdentityPoolProvider{
			{Name: provider, OIDC: oidc, AttributeMapping: byNamespace},
			{Name: other, OIDC: oidc, AttributeMapping: bySubject},
			{Name: narrow, OIDC: trust.OIDC{IssuerURI: issuertest.URL, AllowedAudiences: []string{"openshift", "vault"}}, AttributeMapping: bySubject},
			{Name: elsewhere, OIDC: trust.OIDC{IssuerURI: "https://nobody.test"}, AttributeMapping: bySubject},
			{Name: byPod, OIDC: oidc, AttributeMapping: map[string]string{"google.subject": "assertion.jti"}},
		},
		ServiceAccounts: []trust.ServiceAccount{
			account(cart, principal),
			account(everyone, "principalSet://iam.googleapis.com/"+pool+"/*"),
			account(someone, principal+"2"),
			account("of-shop@proj.iam.gserviceaccount.com", "principalSet://iam.googleapis.com/"+pool+"/attribute.namespace/shop"),
			account("of-bank@proj.iam.gserviceaccount.com", "principalSet://iam.googleapis.com/"+pool+"/attribute.namespace/bank"),
			{Email: "nobody@proj.iam.gserviceaccount.com"},
		},
	}
}

type fixture struct {
	key     issuertest.Key
	es256   issuertest.Key
	cluster *issuertest.Cluster
	journal *journaltest.Recorder
	google  http.Handler
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	f := fixture{key: issuertest.RSA(t, "key-1"), es256: issuertest.ECDSA(t, "key-2"), journal: journaltest.New()}
	f.cluster = issuertest.Start(t, f.key, f.es256, issuertest.Key{ID: "key-3", Algorithm: jose.RS512, Private: f.key.Private})
	var err error
	if f.google, err = google.New(config(), f.cluster.Issuer, f.journal.Journal); err != nil {
		t.Fatal(err)
	}
	return f
}

// form returns a valid request; the other fields replace the usual ones. Empty
// fields are removed.
func form(token string, others map[string]string) url.Values {
	values := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {name}, "scope": {platform},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"subject_token":        {token}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"},
	}
	for name, value := range others {
		values.Set(name, value)
		if value == "" {
			values.Del(name)
		}
	}
	return values
}

func (f fixture) exchange(t testing.TB, values url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://sts.googleapis.com/v1/token", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	f.google.ServeHTTP(w, r)
	return w
}

// federated returns a federated token.
func (f fixture) federated(t testing.TB, claims map[string]any, others map[string]string) (token string, expiresIn int) {
	t.Helper()
	w := f.exchange(t, form(f.key.Sign(t, issuertest.Claims("https:"+name, claims)), others))
	return read(t, w)
}

func read(t testing.TB, w *httptest.ResponseRecorder) (token string, expiresIn int) {
	t.Helper()
	var got struct {
		Token   string `json:"access_token"`
		Issued  string `json:"issued_token_type"`
		Type    string `json:"token_type"`
		Expires int    `json:"expires_in"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusOK || got.Type != "Bearer" || got.Issued != "urn:ietf:params:oauth:token-type:access_token" || len(got.Token) < 100 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	return got.Token, got.Expires
}

func TestExchangeIsGranted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := time.Now()
	tests := map[string]struct {
		key      issuertest.Key
		audience string
		claims   map[string]any
		form     map[string]string
		identity string
		expires  int
	}{
		"to the provider's name":                    {audience: name, expires: 600},
		"to the provider's name with https":         {audience: "https:" + name, expires: 600},
		"to an allowed audience of the provider":    {audience: "vault", form: map[string]string{"audience": "//iam.googleapis.com/" + narrow}, expires: 600},
		"to an ES256 token":                         {audience: name, key: f.es256, expires: 600},
		"as an ID token":                            {audience: name, form: map[string]string{"subject_token_type": "urn:ietf:params:oauth:token-type:id_token"}, expires: 600},
		"for the IAM scope":                         {audience: name, form: map[string]string{"scope": "https://www.googleapis.com/auth/iam"}, expires: 600},
		"for an hour to a token valid for 24 hours": {audience: name, claims: map[string]any{"exp": now.Add(24 * time.Hour).Unix()}, expires: 3600},
		"by another claim": {
			audience: "https://iam.googleapis.com/" + byPod, form: map[string]string{"audience": "//iam.googleapis.com/" + byPod},
			identity: "principal://iam.googleapis.com/" + pool + "/subject/a-token", expires: 600},
		"to a subject of 127 bytes": {
			audience: name, claims: map[string]any{"sub": strings.Repeat("s", 127)},
			identity: "principal://iam.googleapis.com/" + pool + "/subject/" + strings.Repeat("s", 127), expires: 600},
	}
	for testName, test := range tests {
		t.Run(testName, func(t *testing.T) {
			key := test.key
			if key.Private == nil {
				key = f.key
			}
			begun := time.Now()
			token, expires := read(t, f.exchange(t, form(key.Sign(t, issuertest.Claims(test.audience, test.claims)), test.form)))
			// Both ends are rounded to seconds.
			if took := int(time.Since(begun).Seconds()) + 2; expires > test.expires || expires < test.expires-took {
				t.Errorf("got expires_in %d after %d s, want %d", expires, took, test.expires)
			}
			identity := test.identity
			if identity == "" {
				identity = principal
			}
			entry := f.journal.Last(t)
			if entry.Credential != journal.Digest(token) || entry.Identity != identity || entry.Code != "" || entry.Status != 200 ||
				entry.Cloud != "gcp" || entry.Operation != "token-exchange" || entry.PodUID != issuertest.PodUID {
				t.Errorf("got entry %+v", entry)
			}
		})
	}
}

// If keys were uploaded, Google does not read the issuer.
func TestExchangeWithUploadedKeys(t *testing.T) {
	t.Parallel()
	uploaded, renewed := issuertest.RSA(t, "key-1"), issuertest.RSA(t, "key-2")
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: uploaded.Private.Public(), KeyID: uploaded.ID, Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	withKeys := func(jwks string) (fixture, error) {
		f := fixture{journal: journaltest.New()}
		config := config()
		config.WorkloadIdentityPoolProviders[0].OIDC.JWKSJSON = jwks
		var err error
		f.google, err = google.New(config, nil, f.journal.Journal)
		return f, err
	}
	f, err := withKeys(string(keys))
	if err != nil {
		t.Fatal(err)
	}
	read(t, f.exchange(t, form(uploaded.Sign(t, issuertest.Claims(name, nil)), nil)))
	if w := f.exchange(t, form(renewed.Sign(t, issuertest.Claims(name, nil)), nil)); w.Code != http.StatusBadRequest {
		t.Errorf("got %d %s for a key that was not uploaded, want 400", w.Code, w.Body)
	}
	if _, err := withKeys(`{"keys": []}`); err == nil || !strings.Contains(err.Error(), "JSON Web Key Set") {
		t.Errorf("got %v without a key, want an error about the JSON Web Key Set", err)
	}
}

func TestExchangeIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := time.Now()
	const noKey = "Error connecting to the given credential's issuer."
	stale := fmt.Sprintf("ID Token issued at %d is stale to sign-in.", now.Add(-3*24*time.Hour).Unix())
	tests := map[string]struct {
		token   string // default: a token with the claims
		claims  map[string]any
		form    map[string]string
		code    string
		message string
	}{
		"another audience": {claims: map[string]any{"aud": []string{"sts.amazonaws.com"}},
			code: "invalid_grant", message: "The audience in ID Token [sts.amazonaws.com] does not match the expected audience."},
		"no audience": {claims: map[string]any{"aud": nil},
			code: "invalid_grant", message: "The audience in ID Token [] does not match the expected audience."},
		"the default audience of a provider with allowed audiences": {form: map[string]string{"audience": "//iam.googleapis.com/" + narrow},
			code: "invalid_grant", message: "The audience in ID Token [https:" + name + "] does not match the expected audience."},
		"the audience of another pool's provider": {form: map[string]string{"audience": "//iam.googleapis.com/" + other},
			code: "invalid_grant", message: "The audience in ID Token [https:" + name + "] does not match the expected audience."},
		"another issuer": {claims: map[string]any{"iss": "https://else.test"},
			code: "invalid_grant", message: "The issuer in ID Token https://else.test does not match the expected one in config: " + issuertest.URL + "."},
		"the cluster at a provider with another issuer": {form: map[string]string{"audience": "//iam.googleapis.com/" + elsewhere},
			code: "invalid_grant", message: "The issuer in ID Token " + issuertest.URL + " does not match the expected one in config: https://nobody.test."},
		"a trusted issuer that is not the cluster": {claims: map[string]any{"iss": "https://nobody.test"}, form: map[string]string{"audience": "//iam.googleapis.com/" + elsewhere},
			code: "invalid_grant", message: noKey},
		"a key that the cluster does not have":     {token: issuertest.RSA(t, "key-9").Sign(t, issuertest.Claims(name, nil)), code: "invalid_grant", message: noKey},
		"no key ID":                                {token: issuertest.Key{Algorithm: jose.RS256, Private: f.key.Private}.Sign(t, issuertest.Claims(name, nil)), code: "invalid_grant", message: noKey},
		"another algorithm":                        {token: issuertest.Key{ID: "key-3", Algorithm: jose.RS512, Private: f.key.Private}.Sign(t, issuertest.Claims(name, nil)), code: "invalid_grant", message: noKey},
		"the signature of another key":             {token: issuertest.RSA(t, "key-1").Sign(t, issuertest.Claims(name, nil)), code: "invalid_grant", message: "Unable to verify the ID Token signature."},
		"not a JWT":                                {token: "abc", code: "invalid_grant", message: "Unable to parse the ID Token."},
		"an expired token":                         {claims: map[string]any{"iat": now.Add(-3 * 24 * time.Hour).Unix(), "exp": now.Add(-time.Hour).Unix()}, code: "invalid_grant", message: stale},
		"a token with a lifetime that is too long": {claims: map[string]any{"iat": now.Add(-3 * 24 * time.Hour).Unix()}, code: "invalid_grant", message: stale},
		"a token without an issue time":            {claims: map[string]any{"iat": nil}, code: "invalid_grant", message: "ID Token issued at null is stale to sign-in."},
		"no subject":                               {claims: map[string]any{"sub": nil}, code: "invalid_grant", message: "google.subject"},
		"a subject that is too long": {claims: map[string]any{"sub": strings.Repeat("s", 128)}, code: "invalid_grant",
			message: "The size of mapped attribute google.subject exceeds the 127 bytes limit. Either modify your attribute mapping or the incoming assertion to produce a mapped attribute that is less than 127 bytes."},
		"a provider that does not exist": {form: map[string]string{"audience": name + "2"}, code: "invalid_target",
			message: `The target service indicated by the "audience" parameters is invalid. This might either be because the pool or provider is disabled or deleted or because it doesn't exist.`},
		"a provider's name with https": {form: map[string]string{"audience": "https:" + name}, code: "invalid_request",
			message: `Invalid value for "audience". This value should be the full resource name of the Identity Provider. See https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token for the list of possible formats.`},
		"no provider":                  {form: map[string]string{"audience": ""}, code: "invalid_request", message: `"audience"`},
		"no token":                     {form: map[string]string{"subject_token": ""}, code: "invalid_request", message: `"subject_token"`},
		"another grant":                {form: map[string]string{"grant_type": "client_credentials"}, code: "unsupported_grant_type", message: "client_credentials"},
		"another token type":           {form: map[string]string{"subject_token_type": "urn:ietf:params:oauth:token-type:saml2"}, code: "invalid_request", message: "saml2"},
		"another requested token type": {form: map[string]string{"requested_token_type": "urn:ietf:params:oauth:token-type:jwt"}, code: "invalid_request", message: "jwt"},
		"no scope":                     {form: map[string]string{"scope": ""}, code: "invalid_scope", message: "scopes"},
		"an invalid scope":             {form: map[string]string{"scope": platform + " x"}, code: "invalid_scope", message: "scopes"},
	}
	for testName, test := range tests {
		t.Run(testName, func(t *testing.T) {
			token := test.token
			if token == "" {
				token = f.key.Sign(t, issuertest.Claims("https:"+name, test.claims))
			}
			w := f.exchange(t, form(token, test.form))
			var got struct {
				Error       string `json:"error"`
				Description string `json:"error_description"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if w.Code != http.StatusBadRequest || got.Error != test.code || !strings.Contains(got.Description, test.message) {
				t.Errorf("got %d %+v, want %s %q", w.Code, got, test.code, test.message)
			}
			entry := f.journal.Last(t)
			if entry.Status != 400 || entry.Code != test.code || entry.Message != got.Description || entry.Credential != "" {
				t.Errorf("got entry %+v", entry)
			}
			if len(token) > 10 && (strings.Contains(f.journal.Text(), token) || strings.Contains(w.Body.String(), token)) {
				t.Error("got the token in the journal or in the response")
			}
		})
	}
}

func (f fixture) generate(t testing.TB, email, authorization, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+email+":generateAccessToken", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	f.google.ServeHTTP(w, r)
	return w
}

const usual = `{"lifetime": "3600s", "scope": ["` + platform + `"]}`

func TestImpersonationIsGranted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	federated, _ := f.federated(t, nil, nil)
	forIAM, _ := f.federated(t, nil, map[string]string{"scope": "https://www.googleapis.com/auth/iam"})
	tests := map[string]struct {
		email, authorization, body string
		lifetime                   time.Duration
	}{
		"to the subject":                     {email: cart, authorization: "Bearer " + federated, body: usual, lifetime: time.Hour},
		"to a member that is the whole pool": {email: everyone, authorization: "Bearer " + federated, body: usual, lifetime: time.Hour},
		"to a member that is its namespace":  {email: "of-shop@proj.iam.gserviceaccount.com", authorization: "Bearer " + federated, body: usual, lifetime: time.Hour},
		"with the IAM scope":                 {email: cart, authorization: "Bearer " + forIAM, body: usual, lifetime: time.Hour},
		"without delegates":                  {email: cart, authorization: "bearer " + federated, body: `{"delegates": null, "scope": ["x"], "lifetime": "600s"}`, lifetime: 10 * time.Minute},
		"without a lifetime":                 {email: cart, authorization: "Bearer " + federated, body: `{"scope": ["x"]}`, lifetime: time.Hour},
		"for a lifetime with a fraction":     {email: cart, authorization: "Bearer " + federated, body: `{"scope": ["x"], "lifetime": "60.5s"}`, lifetime: 60500 * time.Millisecond},
	}
	for testName, test := range tests {
		t.Run(testName, func(t *testing.T) {
			begun := time.Now()
			w := f.generate(t, test.email, test.authorization, test.body)
			var got struct{ AccessToken, ExpireTime string }
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || len(got.AccessToken) < 100 {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			expires, err := time.Parse("2006-01-02T15:04:05Z", got.ExpireTime)
			if err != nil || expires.Sub(begun) <= test.lifetime-time.Second || time.Until(expires) > test.lifetime {
				t.Errorf("got expireTime %s and error %v, want in %v", got.ExpireTime, err, test.lifetime)
			}
			entry := f.journal.Last(t)
			if entry.Credential != journal.Digest(got.AccessToken) || entry.Identity != test.email || entry.Operation != "generateAccessToken" ||
				entry.Subject != issuertest.Subject || entry.PodUID != issuertest.PodUID || entry.TokenID != "a-token" || entry.Code != "" {
				t.Errorf("got entry %+v", entry)
			}
		})
	}
	if strings.Contains(f.journal.Text(), federated) {
		t.Error("got the federated token in the journal")
	}
}

func TestImpersonationIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	federated, _ := f.federated(t, nil, nil)
	otherSubject, _ := f.federated(t, map[string]any{"sub": "system:serviceaccount:shop:default"}, nil)
	otherPool, _ := f.federated(t, map[string]any{"aud": "https://iam.googleapis.com/" + other}, map[string]string{"audience": "//iam.googleapis.com/" + other})
	storage, _ := f.federated(t, nil, map[string]string{"scope": "https://www.googleapis.com/auth/devstorage.read_only"})
	const deniedText = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist)."
	tests := map[string]struct {
		email, authorization, body string
		status                     int
		code, message              string
	}{
		"no authorization":                  {email: cart, body: usual, status: 401, code: "UNAUTHENTICATED", message: "Request is missing required authentication credential."},
		"another scheme":                    {email: cart, authorization: "Basic " + federated, body: usual, status: 401, code: "UNAUTHENTICATED", message: "missing required"},
		"an unknown token":                  {email: cart, authorization: "Bearer ya29.x", body: usual, status: 401, code: "UNAUTHENTICATED", message: "Request had invalid authentication credentials."},
		"a pod of another ServiceAccount":   {email: cart, authorization: "Bearer " + otherSubject, body: usual, status: 403, code: "PERMISSION_DENIED", message: deniedText},
		"another service account":           {email: someone, authorization: "Bearer " + federated, body: usual, status: 403, code: "PERMISSION_DENIED", message: deniedText},
		"another pool":                      {email: everyone, authorization: "Bearer " + otherPool, body: usual, status: 403, code: "PERMISSION_DENIED", message: deniedText},
		"another namespace":                 {email: "of-bank@proj.iam.gserviceaccount.com", authorization: "Bearer " + federated, body: usual, status: 403, code: "PERMISSION_DENIED", message: deniedText},
		"the same subject, another pool":    {email: cart, authorization: "Bearer " + otherPool, body: usual, status: 403, code: "PERMISSION_DENIED", message: deniedText},
		"a service account without members": {email: "nobody@proj.iam.gserviceaccount.com", authorization: "Bearer " + federated, body: usual, status: 403, code: "PERMISSION_DENIED", message: deniedText},
		"an unknown service account":        {email: "x@proj.iam.gserviceaccount.com", authorization: "Bearer " + federated, body: usual, status: 403, code: "PERMISSION_DENIED", message: deniedText},
		"a delegate":                        {email: cart, authorization: "Bearer " + federated, body: `{"delegates": ["x"], "scope": ["x"]}`, status: 403, code: "PERMISSION_DENIED", message: deniedText},
		"a token with only a storage scope": {email: cart, authorization: "Bearer " + storage, body: usual, status: 403, code: "PERMISSION_DENIED", message: "Request had insufficient authentication scopes."},
		"invalid JSON":                      {email: cart, authorization: "Bearer " + federated, body: "x", status: 400, code: "INVALID_ARGUMENT", message: "Invalid JSON payload received."},
		"no scope":                          {email: cart, authorization: "Bearer " + federated, body: "{}", status: 400, code: "INVALID_ARGUMENT", message: "Scope required."},
		"more than an hour":                 {email: cart, authorization: "Bearer " + federated, body: `{"scope": ["x"], "lifetime": "3601s"}`, status: 400, code: "INVALID_ARGUMENT", message: "lifetimes of more than 1 hour"},
		"a lifetime of zero":                {email: cart, authorization: "Bearer " + federated, body: `{"scope": ["x"], "lifetime": "0s"}`, status: 400, code: "INVALID_ARGUMENT", message: "larger then zero"},
		"a lifetime in minutes":             {email: cart, authorization: "Bearer " + federated, body: `{"scope": ["x"], "lifetime": "10m"}`, status: 400, code: "INVALID_ARGUMENT", message: "'lifetime'"},
		"a lifetime in minutes and seconds": {email: cart, authorization: "Bearer " + federated, body: `{"scope": ["x"], "lifetime": "10m0s"}`, status: 400, code: "INVALID_ARGUMENT", message: "'lifetime'"},
	}
	for testName, test := range tests {
		t.Run(testName, func(t *testing.T) {
			w := f.generate(t, test.email, test.authorization, test.body)
			var got struct {
				Error struct {
					Code            int
					Message, Status string
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if w.Code != test.status || got.Error.Code != test.status || got.Error.Status != test.code || !strings.Contains(got.Error.Message, test.message) {
				t.Errorf("got %d %+v, want %d %s %q", w.Code, got, test.status, test.code, test.message)
			}
			entry := f.journal.Last(t)
			if entry.Status != test.status || entry.Code != test.code || entry.Message != got.Error.Message || entry.Credential != "" || entry.Identity != test.email {
				t.Errorf("got entry %+v", entry)
			}
		})
	}
	if text := f.journal.Text(); strings.Contains(text, federated) || strings.Contains(text, otherSubject) {
		t.Error("got a federated token in the journal")
	}
}

func TestFederatedTokenExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	end := time.Now().Truncate(time.Second).Add(30 * time.Minute)
	federated, _ := f.federated(t, map[string]any{"exp": end.Unix()}, nil)
	// The clock of a bubble starts in the year 2000.
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			at   time.Time
			want int
		}{{end.Add(-time.Second), http.StatusOK}, {end.Add(time.Second), http.StatusUnauthorized}} {
			time.Sleep(time.Until(test.at))
			if w := f.generate(t, cart, "Bearer "+federated, usual); w.Code != test.want {
				t.Errorf("%s before the expiry: got %d %s, want %d", time.Until(end), w.Code, w.Body, test.want)
			}
		}
	})
}

func TestResourceManager(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := httptest.NewRecorder()
	f.google.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://cloudresourcemanager.googleapis.com/v1/projects/123456789", nil))
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), `"PERMISSION_DENIED"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestClusterUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.cluster.SetDown(true)
	w := f.exchange(t, form(f.key.Sign(t, issuertest.Claims(name, nil)), nil))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "Error connecting to") || f.journal.Errors() == "" {
		t.Errorf("got %d %s and log %q", w.Code, w.Body, f.journal.Errors())
	}
}

func TestUnsupportedConfiguration(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*trust.Google)
		want   string
	}{
		"a condition": {func(c *trust.Google) { c.WorkloadIdentityPoolProviders[0].AttributeCondition = "true" }, "attributeCondition"},
		"an expression": {func(c *trust.Google) {
			c.WorkloadIdentityPoolProviders[0].AttributeMapping["google.subject"] = "assertion.sub.extract('x')"
		}, "attributeMapping"},
		"another attribute": {func(c *trust.Google) {
			c.WorkloadIdentityPoolProviders[0].AttributeMapping["attribute.x"] = "assertion.sub"
		}, "attributeMapping"},
		"no mapping":                  {func(c *trust.Google) { c.WorkloadIdentityPoolProviders[0].AttributeMapping = nil }, "attributeMapping"},
		"an invalid name":             {func(c *trust.Google) { c.WorkloadIdentityPoolProviders[0].Name = "//iam.googleapis.com/" + provider }, "want projects/NUMBER"},
		"an issuer without https":     {func(c *trust.Google) { c.WorkloadIdentityPoolProviders[0].OIDC.IssuerURI = "http://x" }, "issuerUri"},
		"a duplicate provider":        {func(c *trust.Google) { c.WorkloadIdentityPoolProviders[0].Name = other }, "twice"},
		"a duplicate service account": {func(c *trust.Google) { c.ServiceAccounts[0].Email = someone }, "twice"},
		"another role":                {func(c *trust.Google) { c.ServiceAccounts[0].Policy.Bindings[0].Role = "roles/owner" }, "roles/owner"},
		"a set by an attribute": {func(c *trust.Google) {
			c.ServiceAccounts[0].Policy.Bindings[0].Members[0] = "principalSet://iam.googleapis.com/" + pool + "/attribute.x/y"
		}, "attribute.x"},
		"a member that is a service account": {func(c *trust.Google) {
			c.ServiceAccounts[0].Policy.Bindings[0].Members[0] = "serviceAccount:" + someone
		}, "serviceAccount:"},
		"a set of a provider": {func(c *trust.Google) {
			c.ServiceAccounts[0].Policy.Bindings[0].Members[0] = "principalSet:" + name + "/*"
		}, "principalSet:"},
	}
	for testName, test := range tests {
		t.Run(testName, func(t *testing.T) {
			t.Parallel()
			c := config()
			// The providers share one map.
			c.WorkloadIdentityPoolProviders[0].AttributeMapping = map[string]string{"google.subject": "assertion.sub"}
			test.change(&c)
			if _, err := google.New(c, nil, nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
}

func FuzzForm(f *testing.F) {
	fixture := newFixture(f)
	good := form(fixture.key.Sign(f, issuertest.Claims(name, nil)), nil).Encode()
	for _, seed := range []string{"", "%", "a=%zz&b", "grant_type=x", good, good + ";", good[:len(good)/2]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "https://sts.googleapis.com/v1/token", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		fixture.google.ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) || w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("got %d %q", w.Code, w.Body)
		}
	})
}
