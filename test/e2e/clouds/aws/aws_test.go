// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package aws_test

import (
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/aws"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	providerURL = "kubernetes.default.svc.cluster.local"
	providerARN = "arn:aws:iam::123456789012:oidc-provider/" + providerURL
	otherURL    = "example.test/other"
	otherARN    = "arn:aws:iam::123456789012:oidc-provider/" + otherURL
	reader      = "arn:aws:iam::123456789012:role/team/reader"
	long        = "arn:aws:iam::123456789012:role/long"
)

// config trusts the ServiceAccount cart and has a second provider.
func config() trust.AWS {
	policy := trust.Policy{Version: "2012-10-17", Statement: []trust.Statement{{
		Effect:    "Allow",
		Principal: trust.Principal{Federated: trust.Strings{providerARN}},
		Action:    trust.Strings{"sts:AssumeRoleWithWebIdentity"},
		Condition: map[string]map[string]trust.Strings{"StringEquals": {
			providerURL + ":sub": {issuertest.Subject},
			providerURL + ":aud": {"sts.amazonaws.com"},
		}},
	}}}
	return trust.AWS{
		OpenIDConnectProviders: []trust.OpenIDConnectProvider{
			{ARN: providerARN, URL: providerURL, ClientIDList: []string{"sts.amazonaws.com", "second"}},
			{ARN: otherARN, URL: otherURL, ClientIDList: []string{"sts.amazonaws.com"}},
		},
		Roles: []trust.Role{
			{ARN: reader, AssumeRolePolicyDocument: policy},
			{ARN: long, AssumeRolePolicyDocument: policy, MaxSessionDuration: 43200},
		},
	}
}

type fixture struct {
	key     issuertest.Key
	cluster *issuertest.Cluster
	journal *journaltest.Recorder
	sts     *aws.STS
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	f := fixture{key: issuertest.RSA(t, "key-1"), journal: journaltest.New()}
	f.cluster = issuertest.Start(t, f.key)
	var err error
	if f.sts, err = aws.New(config(), f.cluster.Issuer, f.journal.Journal); err != nil {
		t.Fatal(err)
	}
	return f
}

// token returns a token signed by the cluster; the other claims replace the
// usual ones.
func (f fixture) token(t testing.TB, others map[string]any) string {
	t.Helper()
	return f.key.Sign(t, issuertest.Claims("sts.amazonaws.com", others))
}

// form returns a valid call; the other fields replace the usual ones. Empty
// fields are removed.
func form(token string, others map[string]string) url.Values {
	values := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn": {reader}, "RoleSessionName": {"shop.cart"}, "WebIdentityToken": {token},
	}
	for name, value := range others {
		values.Set(name, value)
		if value == "" {
			values.Del(name)
		}
	}
	return values
}

func (f fixture) call(t testing.TB, values url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://sts.eu-central-1.amazonaws.com/", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	f.sts.ServeHTTP(w, r)
	return w
}

// granted is a successful response as the SDKs parse it.
type granted struct {
	XMLName xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleWithWebIdentityResponse"`
	Result  struct {
		SubjectFromWebIdentityToken, Audience, Provider string
		AssumedRoleUser                                 struct {
			Arn string
			ID  string `xml:"AssumedRoleId"`
		}
		Credentials struct {
			AccessKeyID                               string `xml:"AccessKeyId"`
			SecretAccessKey, SessionToken, Expiration string
		}
	} `xml:"AssumeRoleWithWebIdentityResult"`
	RequestID string `xml:"ResponseMetadata>RequestId"`
}

func TestAssumeRoleIsGranted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tests := map[string]struct {
		claims   map[string]any
		form     map[string]string
		role     string
		duration time.Duration
	}{
		"for the default of an hour":            {role: "reader", duration: time.Hour},
		"for the requested duration":            {form: map[string]string{"DurationSeconds": "900"}, role: "reader", duration: 15 * time.Minute},
		"for the role's maximum duration":       {form: map[string]string{"DurationSeconds": "43200", "RoleArn": long}, role: "long", duration: 12 * time.Hour},
		"to a token with several audiences":     {claims: map[string]any{"aud": []string{"x", "sts.amazonaws.com"}}, role: "reader", duration: time.Hour},
		"to a token whose audience is a string": {claims: map[string]any{"aud": "sts.amazonaws.com"}, role: "reader", duration: time.Hour},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			w := f.call(t, form(f.token(t, test.claims), test.form))
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/xml" {
				t.Fatalf("got %d %v %s", w.Code, w.Header(), w.Body)
			}
			var got granted
			if err := xml.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			result := got.Result
			if result.SubjectFromWebIdentityToken != issuertest.Subject || result.Audience != "sts.amazonaws.com" || result.Provider != providerARN ||
				result.AssumedRoleUser.Arn != "arn:aws:sts::123456789012:assumed-role/"+test.role+"/shop.cart" ||
				!regexp.MustCompile(`^AROA[A-Z2-7]{17}:shop\.cart$`).MatchString(result.AssumedRoleUser.ID) {
				t.Errorf("got result %+v", result)
			}
			credentials := result.Credentials
			if !regexp.MustCompile(`^ASIA[A-Z2-7]{16}$`).MatchString(credentials.AccessKeyID) || len(credentials.SecretAccessKey) != 40 || len(credentials.SessionToken) < 100 {
				t.Errorf("got credentials %+v", credentials)
			}
			expires, err := time.Parse("2006-01-02T15:04:05Z", credentials.Expiration)
			if err != nil || expires.Sub(begun) <= test.duration-time.Second || time.Until(expires) > test.duration {
				t.Errorf("got expiration %s and error %v, want in %v", credentials.Expiration, err, test.duration)
			}
			entry := f.journal.Last(t)
			if entry.Credential != journal.Digest(credentials.SessionToken) || entry.Status != 200 || entry.Code != "" || entry.PodUID != issuertest.PodUID {
				t.Errorf("got entry %+v", entry)
			}
		})
	}
}

func TestAssumeRoleIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := time.Now()
	impostor := issuertest.RSA(t, "key-1").Sign(t, issuertest.Claims("sts.amazonaws.com", nil))
	stranger := issuertest.RSA(t, "key-9").Sign(t, issuertest.Claims("sts.amazonaws.com", nil))
	const noKey = "Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements"
	tests := map[string]struct {
		token   string // default: a token with the claims
		claims  map[string]any
		form    map[string]string
		status  int
		code    string
		message string
	}{
		"another audience": {claims: map[string]any{"aud": []string{"api://AzureADTokenExchange"}},
			status: 400, code: "InvalidIdentityToken", message: "Incorrect token audience"},
		"no audience": {claims: map[string]any{"aud": nil},
			status: 400, code: "InvalidIdentityToken", message: "Incorrect token audience"},
		"an unknown issuer": {claims: map[string]any{"iss": "https://nobody.test"},
			status: 400, code: "InvalidIdentityToken", message: "No OpenIDConnect provider found in your account for https://nobody.test"},
		"an issuer of another account": {form: map[string]string{"RoleArn": "arn:aws:iam::999999999999:role/reader"},
			status: 400, code: "InvalidIdentityToken", message: "No OpenIDConnect provider found in your account for " + issuertest.URL},
		"a configured issuer that is not the cluster": {claims: map[string]any{"iss": "https://" + otherURL},
			status: 400, code: "InvalidIdentityToken", message: noKey},
		"a key that the cluster does not have": {token: stranger, status: 400, code: "InvalidIdentityToken", message: noKey},
		"the signature of another key":         {token: impostor, status: 400, code: "InvalidIdentityToken", message: "The signature of the ID Token provided is not valid"},
		"not a JWT": {token: "abcdef",
			status: 400, code: "InvalidIdentityToken", message: "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)"},
		"an expired token": {claims: map[string]any{"exp": now.Add(-time.Hour).Unix()},
			status: 400, code: "ExpiredTokenException", message: "Token expired: current date/time * must be before the expiration date/time *"},
		"a token that is not valid yet": {claims: map[string]any{"nbf": now.Add(time.Hour).Unix()},
			status: 400, code: "InvalidIdentityToken", message: "The ID Token provided is not valid yet"},
		"a pod of another ServiceAccount": {claims: map[string]any{"sub": "system:serviceaccount:shop:default"},
			status: 403, code: "AccessDenied", message: "Not authorized to perform sts:AssumeRoleWithWebIdentity"},
		"an audience that the provider allows and the role does not": {claims: map[string]any{"aud": []string{"second"}},
			status: 403, code: "AccessDenied", message: "Not authorized to perform sts:AssumeRoleWithWebIdentity"},
		"a role that does not exist": {form: map[string]string{"RoleArn": "arn:aws:iam::123456789012:role/nobody"},
			status: 403, code: "AccessDenied", message: "Not authorized to perform sts:AssumeRoleWithWebIdentity"},
		"a session longer than the role's maximum": {form: map[string]string{"DurationSeconds": "3601"},
			status: 400, code: "ValidationError", message: "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."},
		"a session that is too short": {form: map[string]string{"DurationSeconds": "899"},
			status: 400, code: "ValidationError", message: "1 validation error detected: Value '899' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to 900"},
		"a session that is too long": {form: map[string]string{"DurationSeconds": "43201"},
			status: 400, code: "ValidationError", message: "1 validation error detected: Value '43201' at 'durationSeconds' failed to satisfy constraint: Member must have value less than or equal to 43200"},
		"a duration that is not a number": {form: map[string]string{"DurationSeconds": "1h"},
			status: 400, code: "MalformedInput", message: "DurationSeconds is not an integer"},
		"no token and no role": {form: map[string]string{"WebIdentityToken": "", "RoleArn": ""},
			status: 400, code: "ValidationError", message: "2 validation errors detected: Value null at 'roleArn' failed to satisfy constraint: Member must not be null; Value null at 'webIdentityToken' failed to satisfy constraint: Member must not be null"},
		"a token that is too short": {token: "xyz",
			status: 400, code: "ValidationError", message: "1 validation error detected: Value at 'webIdentityToken' failed to satisfy constraint: Member must have length greater than or equal to 4"},
		"a token that is too long": {token: strings.Repeat("a", 20001),
			status: 400, code: "ValidationError", message: "1 validation error detected: Value at 'webIdentityToken' failed to satisfy constraint: Member must have length less than or equal to 20000"},
		"a session name that is too short": {form: map[string]string{"RoleSessionName": "a"},
			status: 400, code: "ValidationError", message: "1 validation error detected: Value 'a' at 'roleSessionName' failed to satisfy constraint: Member must have length greater than or equal to 2"},
		"a session name with a slash": {form: map[string]string{"RoleSessionName": "shop/cart"},
			status: 400, code: "ValidationError", message: `1 validation error detected: Value 'shop/cart' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\w+=,.@-]*`},
		"an ARN that is not a role": {form: map[string]string{"RoleArn": "arn:aws:iam::123456789012:user/reader"},
			status: 400, code: "ValidationError", message: "Request ARN is invalid"},
		"another action": {form: map[string]string{"Action": "GetCallerIdentity"},
			status: 400, code: "InvalidAction", message: "Could not find operation GetCallerIdentity for version 2011-06-15"},
		"another version": {form: map[string]string{"Version": "2012-10-17"},
			status: 400, code: "InvalidAction", message: "Could not find operation AssumeRoleWithWebIdentity for version 2012-10-17"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			token := test.token
			if token == "" {
				token = f.token(t, test.claims)
			}
			w := f.call(t, form(token, test.form))
			var got struct {
				XMLName xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ ErrorResponse"`
				Error   struct{ Type, Code, Message string }
			}
			if err := xml.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			message := regexp.MustCompile(`\b\d{10}\b`).ReplaceAllString(got.Error.Message, "*")
			if diff := cmp.Diff([]any{test.status, "Sender", test.code, test.message}, []any{w.Code, got.Error.Type, got.Error.Code, message}); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			entry := f.journal.Last(t)
			if entry.Status != test.status || entry.Code != test.code || entry.Message != got.Error.Message || entry.Credential != "" {
				t.Errorf("got entry %+v", entry)
			}
			if strings.Contains(f.journal.Text(), token) || strings.Contains(w.Body.String(), token) {
				t.Error("got the token in the journal or in the response")
			}
		})
	}
}

func TestClusterUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.cluster.SetDown(true)
	w := f.call(t, form(f.token(t, nil), nil))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "<Code>IDPCommunicationError</Code>") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if f.journal.Errors() == "" {
		t.Error("got no error in the log")
	}
}

func TestOtherRequestsAreNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodGet, "https://sts.amazonaws.com/", nil),
		httptest.NewRequest(http.MethodPost, "https://sts.amazonaws.com/x", nil),
	} {
		w := httptest.NewRecorder()
		f.sts.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound || f.journal.Text() != "" {
			t.Errorf("%s %s: got %d and journal %q", r.Method, r.URL, w.Code, f.journal.Text())
		}
	}
}

func FuzzForm(f *testing.F) {
	fixture := newFixture(f)
	good := form(fixture.token(f, nil), nil).Encode()
	for _, seed := range []string{"", "%", "a=%zz&b", "Action=AssumeRoleWithWebIdentity", good, good + ";", good + "&DurationSeconds=-1", good[:len(good)/2]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "https://sts.amazonaws.com/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		fixture.sts.ServeHTTP(w, r)
		var anything struct{ XMLName xml.Name }
		if err := xml.Unmarshal(w.Body.Bytes(), &anything); err != nil {
			t.Errorf("got %d %q: %v", w.Code, w.Body, err)
		}
		if w.Code != http.StatusOK && (w.Code < 400 || w.Code >= 500) {
			t.Errorf("got status %d", w.Code)
		}
	})
}
