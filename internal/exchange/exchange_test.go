// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package exchange_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/exchange"
)

const (
	secret = "a-secret-token"
	role   = "arn:aws:iam::111122223333:role/cart"
)

// aws, azure and gcp are the requests of pods. others contains additional variables, as pairs.
func aws(others ...string) exchange.Request {
	variables := map[string]string{"AWS_ROLE_ARN": role, "AWS_ROLE_SESSION_NAME": "cart@shop"}
	for i := 0; i < len(others); i += 2 {
		variables[others[i]] = others[i+1]
	}
	return exchange.Request{Provider: "aws", Variables: variables}
}

func azure(authority string) exchange.Request {
	return exchange.Request{Provider: "azure", Variables: map[string]string{
		"AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant", "AZURE_AUTHORITY_HOST": authority,
	}}
}

func gcp(impersonate string) exchange.Request {
	return exchange.Request{Provider: "gcp", File: `{"audience":"//iam.googleapis.com/pool/providers/p",` +
		`"token_url":"https://sts.googleapis.com/v1/token","service_account_impersonation_url":"` + impersonate + `"}`}
}

// do presents a secret token.
func do(t *testing.T, client *http.Client, r exchange.Request, endpoint string) (*exchange.Answer, error) {
	t.Helper()
	r.Token, r.Endpoint = secret, endpoint
	return exchange.Do(t.Context(), client, &r)
}

// answering returns a client that gets a response from any host, and the requests
// that it got.
func answering(t *testing.T, status int, body string) (*http.Client, *[]*http.Request) {
	t.Helper()
	client, err := exchange.NewClient("")
	if err != nil {
		t.Fatal(err)
	}
	var requests []*http.Request
	client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		requests = append(requests, r)
		return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://other.example"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})
	return client, &requests
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A token only goes where the SDK in the pod would send it.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	region := func(name string) exchange.Request { return aws("AWS_REGION", name) }
	china := aws("AWS_REGION", "cn-north-1", "AWS_ROLE_ARN", "arn:aws-cn:iam::111122223333:role/cart")
	tests := map[string]struct {
		request  exchange.Request
		endpoint string
		want     string
	}{
		"AWS":                      {aws(), "", "https://sts.amazonaws.com/"},
		"AWS in a region":          {region("eu-central-1"), "", "https://sts.eu-central-1.amazonaws.com/"},
		"AWS in China":             {china, "", "https://sts.cn-north-1.amazonaws.com.cn/"},
		"an endpoint of AWS":       {region("eu-central-1"), "https://vpce.example", "https://vpce.example/"},
		"Azure":                    {azure("https://login.microsoftonline.com/"), "", "https://login.microsoftonline.com/tenant/oauth2/v2.0/token"},
		"an authority with a path": {azure("https://login.example/a"), "", "https://login.example/a/tenant/oauth2/v2.0/token"},
		"an endpoint of Azure":     {azure("https://login.microsoftonline.com/"), "https://proxy.example:8443/", "https://proxy.example:8443/tenant/oauth2/v2.0/token"},
		"Google":                   {gcp(""), "", "https://sts.googleapis.com/v1/token"},
		"an endpoint of Google":    {gcp(""), "https://sts.example", "https://sts.example/v1/token"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, requests := answering(t, 500, "")
			_, _ = do(t, client, test.request, test.endpoint)
			if len(*requests) != 1 || (*requests)[0].URL.String() != test.want {
				t.Fatalf("got %v, want one request to %s", *requests, test.want)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	china := aws("AWS_ROLE_ARN", "arn:aws-cn:iam::111122223333:role/cart")
	tests := map[string]struct {
		request  exchange.Request
		endpoint string
		want     string
	}{
		"a plain token":           {exchange.Request{Provider: "token"}, "", `provider "token" has no exchange`},
		"an endpoint with http":   {aws(), "http://sts.example", "is not an https URL without a path"},
		"an endpoint with a path": {aws(), "https://sts.example/a", "is not an https URL without a path"},
		"an endpoint with a user": {gcp(""), "https://user@sts.example", "is not an https URL without a path"},
		"an authority with http":  {azure("http://login.example"), "", `the URL "http://login.example/tenant/oauth2/v2.0/token" is not an https URL`},
		"no role":                 {exchange.Request{Provider: "aws"}, "", `AWS_ROLE_ARN "" is not the ARN of a role`},
		"China without a region":  {china, "", `partition "aws-cn" has no global endpoint, and region ""`},
		"no credential file":      {exchange.Request{Provider: "gcp"}, "", "credential file: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, requests := answering(t, 200, "")
			_, err := do(t, client, test.request, test.endpoint)
			if err == nil || !strings.Contains(err.Error(), test.want) || len(*requests) > 0 {
				t.Errorf("got error %v and %d requests, want %q and none", err, len(*requests), test.want)
			}
		})
	}
}

// A response that is not the API's is an error. It may be a page of a proxy, or contain
// a credential, so no part of it is shown.
func TestUnexpectedResponses(t *testing.T) {
	t.Parallel()
	all := map[string]exchange.Request{
		"AWS": aws(), "Azure": azure("https://login.microsoftonline.com/"), "Google": gcp(""),
	}
	responses := map[string]struct {
		status int
		body   string
		want   string
	}{
		"a page with an error":    {502, "<html>HIDDEN</html>", "the response with status 502"},
		"a page":                  {200, "<html>HIDDEN</html>", "the response with status 200"},
		"a redirect":              {302, "HIDDEN", "the response with status 302"},
		"nothing":                 {200, "", "the response with status 200"},
		"an empty object":         {200, "{}", "the response with status 200"},
		"an error with a success": {200, `{"error":"HIDDEN"}`, "the response with status 200"},
		"a success with an error": {403, `{"access_token":"HIDDEN"}`, "the response with status 403"},
		"too much":                {200, strings.Repeat("HIDDEN", 1<<20), "the response has more than 262144 bytes"},
	}
	for where, p := range all {
		for name, response := range responses {
			t.Run(where+" and "+name, func(t *testing.T) {
				t.Parallel()
				client, requests := answering(t, response.status, response.body)
				_, err := do(t, client, p, "")
				if err == nil || !strings.Contains(err.Error(), response.want) || strings.Contains(err.Error(), "HIDDEN") {
					t.Errorf("got error %v, want %q", err, response.want)
				}
				if len(*requests) != 1 {
					t.Errorf("got %d requests, want 1: a redirect is not followed", len(*requests))
				}
			})
		}
	}
}

// A cloud may repeat the token.
func TestMessagesContainNoToken(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10000)
	tests := map[string]struct {
		request exchange.Request
		body    string
	}{
		"AWS":    {aws(), "<ErrorResponse><Error><Code>Denied</Code><Message>bad " + secret + " " + long + "</Message></Error></ErrorResponse>"},
		"Azure":  {azure("https://login.microsoftonline.com/"), `{"error":"Denied","error_description":"bad ` + secret + " " + long + `"}`},
		"Google": {gcp(""), `{"error":"Denied","error_description":"bad ` + secret + " " + long + `"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, _ := answering(t, 400, test.body)
			answer, err := do(t, client, test.request, "")
			if err != nil {
				t.Fatal(err)
			}
			if answer.Granted || answer.Status != 400 || answer.Code != "Denied" || !strings.HasPrefix(answer.Message, "bad [token] xxx") || len(answer.Message) > 3000 {
				t.Errorf("got %+v", answer)
			}
		})
	}
}

// Google's federated credential only goes to the second service, and is not shown,
// either.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	client, err := exchange.NewClient("")
	if err != nil {
		t.Fatal(err)
	}
	const url = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com:generateAccessToken"
	var second *http.Request
	client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		status, body := 200, `{"access_token":"FEDERATED","expires_in":60}`
		if r.URL.Host != "sts.googleapis.com" {
			second, status, body = r, 403, `{"error":{"code":403,"status":"PERMISSION_DENIED","message":"FEDERATED may not"}}`
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}, nil
	})
	answer, err := do(t, client, gcp(url), "")
	want := &exchange.Answer{Operation: "generateAccessToken", URL: url, Status: 403, Code: "PERMISSION_DENIED", Message: "[token] may not"}
	if diff := cmp.Diff(want, answer); diff != "" || err != nil {
		t.Fatalf("answer (-want +got):\n%s%v", diff, err)
	}
	if got := second.Header.Get("Authorization"); got != "Bearer FEDERATED" {
		t.Errorf("got Authorization %q", got)
	}
}
