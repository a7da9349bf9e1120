// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli_test tests the packages behind lanyard trust and lanyard token with the
// emulated clouds: with the trust that lanyard trust prints, the clouds issue a
// credential to lanyard token.
package cli_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	emulated "github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	role      = "arn:aws:iam::123456789012:role/team/cart"
	clientID  = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	tenantID  = "11111111-2222-4333-8444-555555555555"
	pool      = "projects/123456789012/locations/global/workloadIdentityPools/production"
	poolOIDC  = pool + "/providers/kubernetes"
	email     = "cart-app@my-project.iam.gserviceaccount.com"
	principal = "principal://iam.googleapis.com/" + pool + "/subject/" + issuertest.Subject
)

// clouds are the annotations of a ServiceAccount for each cloud, and the identity
// that they get.
var clouds = map[string]struct {
	provider    string
	annotations map[string]string
	identity    string
}{
	"AWS":                              {"aws", map[string]string{"aws-role-arn": role}, "arn:aws:sts::123456789012:assumed-role/cart/cart@shop"},
	"AWS in a region":                  {"aws", map[string]string{"aws-role-arn": role, "aws-region": "eu-central-1"}, "arn:aws:sts::123456789012:assumed-role/cart/cart@shop"},
	"AWS with another audience":        {"aws", map[string]string{"aws-role-arn": role, "aws-audience": "openshift"}, "arn:aws:sts::123456789012:assumed-role/cart/cart@shop"},
	"Azure":                            {"azure", map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID}, clientID + " in the tenant " + tenantID},
	"Azure with another audience":      {"azure", map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID, "azure-audience": "openshift"}, clientID + " in the tenant " + tenantID},
	"Google directly":                  {"gcp", map[string]string{"gcp-workload-identity-provider": poolOIDC}, principal},
	"Google with another audience":     {"gcp", map[string]string{"gcp-workload-identity-provider": poolOIDC, "gcp-audience": "openshift"}, principal},
	"Google through a service account": {"gcp", map[string]string{"gcp-workload-identity-provider": poolOIDC, "gcp-service-account": email}, email},
}

// identityOf returns the identity that annotations ask for.
func identityOf(t *testing.T, values map[string]string) *annotations.Identity {
	t.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, value := range values {
		all[annotations.Prefix+name] = value
	}
	account, errs := s.ParseServiceAccount("shop", "cart", all)
	if len(errs) > 0 || len(account.Identities) != 1 {
		t.Fatalf("got %+v and %v, want one identity", account, errs)
	}
	return &account.Identities[0]
}

// trustOf returns the emulators' trust file for the output of package trust.
func trustOf(t *testing.T, identity *annotations.Identity, token cloud.Token) emulated.Trust {
	t.Helper()
	token.Values = identity.Values
	trust, err := cloud.NewTrust(identity.Provider.Name, &token)
	parts := partsOf(t, err, trust)
	var file string
	switch identity.Provider.Name {
	case "aws":
		file = fmt.Sprintf(`{"aws": {"openIDConnectProviders": [%s], "roles": [%s]}}`, parts["openIDConnectProvider"], parts["role"])
	case "azure":
		file = fmt.Sprintf(`{"entra": {"tenants": [{"tenantId": %q, "applications": [{"appId": %q, "federatedIdentityCredentials": [%s]}]}]}}`,
			tenantID, clientID, parts["federatedCredential"])
	case "gcp":
		file = fmt.Sprintf(`{"google": {"workloadIdentityPoolProviders": [%s], "serviceAccounts": [%s]}}`, parts["workloadIdentityPoolProvider"], parts["serviceAccount"])
	}
	parsed, err := emulated.Parse([]byte(file))
	if err != nil {
		t.Fatalf("%v: %s", err, file)
	}
	return parsed
}

// partsOf returns the members of a configuration's JSON.
func partsOf(t *testing.T, err error, trust cloud.Trust) (parts map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal([]byte(marshal(t, err, trust)), &parts); err != nil {
		t.Fatal(err)
	}
	return parts
}

func marshal(t *testing.T, err error, v any) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fixture is a cluster, and emulated clouds with a client for them.
type fixture struct {
	key      issuertest.Key
	journal  *journaltest.Recorder
	client   *http.Client
	recorded *recorder
}

func newFixture(t *testing.T, trusted func() emulated.Trust) *fixture {
	t.Helper()
	f := &fixture{key: issuertest.RSA(t, "key-1"), journal: journaltest.New()}
	cluster := issuertest.Start(t, f.key)
	handler, err := emulator.New(trusted(), cluster.Issuer, f.journal.Journal)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	f.client, err = exchange.NewClient("")
	if err != nil {
		t.Fatal(err)
	}
	transport := f.client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	// All hosts are the emulator.
	transport.Proxy = nil
	transport.DialContext = (&redirected{server.Listener.Addr().String()}).dial
	f.recorded = &recorder{next: transport}
	f.client.Transport = f.recorded
	return f
}

// recorder keeps the responses.
type recorder struct {
	next http.RoundTripper

	mu     sync.Mutex
	bodies bytes.Buffer
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies.Write(body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

var credential = regexp.MustCompile(`(?:access_token|accessToken)": ?"([^"]+)"|<(?:AccessKeyId|SecretAccessKey|SessionToken)>([^<]+)<`)

// credentials returns the credentials in the responses.
func (r *recorder) credentials() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, match := range credential.FindAllStringSubmatch(r.bodies.String(), -1) {
		found = append(found, match[1]+match[2])
	}
	return found
}

// present exchanges a token with the claims.
func (f *fixture) present(t *testing.T, identity *annotations.Identity, claims map[string]any) *exchange.Answer {
	t.Helper()
	injection := provider.NewInjection([]annotations.Identity{*identity}, &provider.Subject{
		Namespace: "shop", ServiceAccount: "cart", MountPath: annotations.DefaultTokenMountPath, TokenExpirationSeconds: 3600,
	})
	token := f.key.Sign(t, issuertest.Claims(identity.Audience, claims))
	p := &injection.Providers[0]
	request := &exchange.Request{Provider: p.Name, Audience: p.Token.Audience, File: p.File.Content, Token: token, Variables: map[string]string{}}
	for _, v := range p.Variables {
		request.Variables[v.Name] = v.Value
	}
	answer, err := cloud.Do(t.Context(), f.client, request)
	if err != nil {
		t.Fatal(err)
	}
	text := marshal(t, nil, answer)
	for _, secret := range append(f.recorded.credentials(), token) {
		if strings.Contains(text, secret) {
			t.Errorf("got %s, want no credential and no token in it", text)
		}
	}
	return answer
}

// With the output of package trust, the clouds issue a credential.
func TestTrustMakesTheExchangeSucceed(t *testing.T) {
	t.Parallel()
	for name, test := range clouds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identity := identityOf(t, test.annotations)
			token := cloud.Token{Issuer: issuertest.URL, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "cart"}}, Audience: identity.Audience}
			f := newFixture(t, func() emulated.Trust { return trustOf(t, identity, token) })
			begun := time.Now()
			answer := f.present(t, identity, nil)
			if !answer.Granted || answer.Identity != test.identity {
				t.Fatalf("got %+v, want a credential of %s", answer, test.identity)
			}
			if answer.Expires.Sub(begun) < 9*time.Minute || time.Until(*answer.Expires) > 61*time.Minute {
				t.Errorf("got an end in %s, want one of the clouds", time.Until(*answer.Expires))
			}
			if len(f.recorded.credentials()) == 0 {
				t.Error("got no credential in the responses, so the test has not seen what must not be shown")
			}
			entries := f.journal.Entries(t)
			if last := entries[len(entries)-1]; last.Status != http.StatusOK || last.Credential == "" {
				t.Errorf("got journal entry %+v, want a credential", last)
			}
		})
	}
}

// The trust is for one ServiceAccount of one cluster, and for one audience.
func TestTrustDeniesOtherTokens(t *testing.T) {
	t.Parallel()
	tokens := map[string]map[string]any{
		"of another ServiceAccount": {"sub": "system:serviceaccount:shop:cart2"},
		"of another namespace":      {"sub": "system:serviceaccount:shop2:cart"},
		"in upper case":             {"sub": "system:serviceaccount:shop:CART"},
		"of another issuer":         {"iss": "https://issuer.example.test"},
		"for another audience":      {"aud": []string{"other"}},
		"that has expired":          {"exp": time.Now().Add(-time.Hour).Unix()},
	}
	for name, test := range clouds {
		if name == "Google directly" || name == "Google with another audience" {
			continue // every subject of the pool gets a credential; the roles decide
		}
		for which, claims := range tokens {
			t.Run(name+" and a token "+which, func(t *testing.T) {
				t.Parallel()
				identity := identityOf(t, test.annotations)
				token := cloud.Token{Issuer: issuertest.URL, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "cart"}}, Audience: identity.Audience}
				f := newFixture(t, func() emulated.Trust { return trustOf(t, identity, token) })
				answer := f.present(t, identity, maps.Clone(claims))
				if answer.Granted || answer.Code == "" || answer.Message == "" || answer.Status < 400 || answer.Expires != nil {
					t.Errorf("got %+v, want a code and a message", answer)
				}
				entries := f.journal.Entries(t)
				if last := entries[len(entries)-1]; answer.Code != last.Code || answer.Message != last.Message {
					t.Errorf("got code %q and message %q, want those of the cloud, %q and %q", answer.Code, answer.Message, last.Code, last.Message)
				}
			})
		}
	}
}

// redirected connects to the same address for every host.
type redirected struct{ address string }

func (r *redirected) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, r.address)
}
