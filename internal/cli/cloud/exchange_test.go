// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
)

const (
	secret = "a-secret-token"
	role   = "arn:aws:iam::111122223333:role/cart"
)

// aws, azure and gcp are the requests of pods. others are more variables, as pairs.
func aws(others ...string) cloud.Request {
	variables := map[string]string{"AWS_ROLE_ARN": role, "AWS_ROLE_SESSION_NAME": "cart@shop"}
	for i := 0; i < len(others); i += 2 {
		variables[others[i]] = others[i+1]
	}
	return cloud.Request{Provider: "aws", Variables: variables}
}

func azure(authority string) cloud.Request {
	return cloud.Request{Provider: "azure", Variables: map[string]string{
		"AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant", "AZURE_AUTHORITY_HOST": authority,
	}}
}

func gcp(impersonate string) cloud.Request {
	return cloud.Request{Provider: "gcp", File: `{"audience":"//iam.googleapis.com/pool/providers/p",` +
		`"token_url":"https://sts.googleapis.com/v1/token","service_account_impersonation_url":"` + impersonate + `"}`}
}

// do presents the secret.
func do(t *testing.T, client *http.Client, r cloud.Request, endpoint string) (*cloud.Answer, error) {
	t.Helper()
	r.Token, r.Endpoint = secret, endpoint
	return cloud.Do(t.Context(), client, &r)
}

// answering returns a client that gets a response from any host, and the requests
// that it got.
func answering(t *testing.T, status int, body string) (*http.Client, *[]*http.Request) {
	t.Helper()
	client, err := cloud.NewClient("")
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
	region := func(name string) cloud.Request { return aws("AWS_REGION", name) }
	china := aws("AWS_REGION", "cn-north-1", "AWS_ROLE_ARN", "arn:aws-cn:iam::111122223333:role/cart")
	tests := map[string]struct {
		request  cloud.Request
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
		request  cloud.Request
		endpoint string
		want     string
	}{
		"a plain token":           {cloud.Request{Provider: "token"}, "", `provider "token" has no exchange`},
		"an endpoint with http":   {aws(), "http://sts.example", "is not an https URL without a path"},
		"an endpoint with a path": {aws(), "https://sts.example/a", "is not an https URL without a path"},
		"an endpoint with a user": {gcp(""), "https://user@sts.example", "is not an https URL without a path"},
		"an authority with http":  {azure("http://login.example"), "", `the URL "http://login.example/tenant/oauth2/v2.0/token" is not an https URL`},
		"no role":                 {cloud.Request{Provider: "aws"}, "", `AWS_ROLE_ARN "" is not the ARN of a role`},
		"China without a region":  {china, "", `partition "aws-cn" has no global endpoint, and region ""`},
		"no credential file":      {cloud.Request{Provider: "gcp"}, "", "credential file: "},
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

// What is not of the API is an error. It may be a page of a proxy, or contain a
// credential: nothing of it is shown.
func TestUnexpectedResponses(t *testing.T) {
	t.Parallel()
	all := map[string]cloud.Request{
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

// A cloud may repeat what it got.
func TestMessagesContainNoToken(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10000)
	tests := map[string]struct {
		request cloud.Request
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

// The federated credential of Google only goes to the second service, and is not
// shown either.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	client, err := cloud.NewClient("")
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
	want := &cloud.Answer{Operation: "generateAccessToken", URL: url, Status: 403, Code: "PERMISSION_DENIED", Message: "[token] may not"}
	if diff := cmp.Diff(want, answer); diff != "" || err != nil {
		t.Fatalf("answer (-want +got):\n%s%v", diff, err)
	}
	if got := second.Header.Get("Authorization"); got != "Bearer FEDERATED" {
		t.Errorf("got Authorization %q", got)
	}
}

func TestTheSystemsCertificatesAreNotUsedWithAnotherCA(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(server.Close)
	if _, err := cloud.NewClient("exchange_test.go"); err == nil {
		t.Error("got no error for a file that is not PEM")
	}
	client, err := cloud.NewClient("")
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := client.Do(request); err == nil {
		_ = response.Body.Close()
		t.Error("got a response of a server with an unknown CA")
	}
}

// The pods are those that the webhook makes.
func TestFromPodIsWhatWasInjected(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	account, pod := decision(t, "several/three-clouds-in-every-kind-of-container")
	parsed, errs := s.ParseServiceAccount(account.Namespace, account.Name, account.Annotations)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	injection := provider.NewInjection(parsed.Identities, &provider.Subject{
		Namespace: account.Namespace, ServiceAccount: account.Name, MountPath: annotations.DefaultTokenMountPath, TokenExpirationSeconds: 3600,
	})
	if len(injection.Providers) != 3 {
		t.Fatalf("got %d providers, want 3", len(injection.Providers))
	}
	for _, want := range injection.Providers {
		got, err := cloud.FromPod(readPod(t, pod, s), s, &account.ObjectMeta, want.Name)
		if err != nil {
			t.Fatal(err)
		}
		variables := map[string]string{}
		for _, v := range want.Variables {
			variables[v.Name] = v.Value
		}
		wanted := &cloud.Request{
			Namespace: account.Namespace, ServiceAccount: account.Name, Prefix: annotations.Prefix,
			Provider: want.Name, Audience: want.Token.Audience, ExpirationSeconds: want.Token.ExpirationSeconds, Variables: variables, File: want.File.Content,
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
	for name, want := range map[string]string{"token": "lacks token", "other": `provider "other" does not exist`} {
		if _, err := cloud.FromPod(readPod(t, pod, s), s, &account.ObjectMeta, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
		}
	}
	pod.Spec.Volumes = nil
	if _, err := cloud.FromPod(readPod(t, pod, s), s, &account.ObjectMeta, "aws"); err == nil || !strings.Contains(err.Error(), "have no token with the path aws/token") {
		t.Errorf("without volumes: got error %v", err)
	}
}

// A pod gets its session name from its own name.
func TestTheSessionNameIsTheNameOfThePod(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	_, pod := decision(t, "aws/session-name-of-a-named-pod")
	got, err := cloud.FromPod(readPod(t, pod, s), s, &metav1.ObjectMeta{}, "aws")
	if err != nil || got.Variables["AWS_ROLE_SESSION_NAME"] != "pod" {
		t.Errorf("got %+v and error %v", got, err)
	}
}

func readPod(t *testing.T, pod *corev1.Pod, s *annotations.Settings) *injected.Pod {
	t.Helper()
	read, err := injected.Read(pod, s)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// decision returns the ServiceAccount of a golden case, and the injected pod.
func decision(t *testing.T, name string) (account *corev1.ServiceAccount, pod *corev1.Pod) {
	t.Helper()
	c, err := decisions.ReadCase("../../../test/decisions", name)
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Result()
	if err == nil {
		err = errors.Join(json.Unmarshal(c.ServiceAccount, &account), json.Unmarshal(result, &pod))
	}
	if err != nil {
		t.Fatal(err)
	}
	return account, pod
}
