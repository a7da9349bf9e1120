// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Request is a token with the cloud to present it to.
type Request struct {
	// Provider has the variables and files of the ServiceAccount's pods.
	Provider provider.Provider
	// Token is the ServiceAccount token.
	Token string
	// Endpoint replaces the scheme and the host of every URL, as in
	// https://sts.example.com; empty for the cloud's own.
	Endpoint string
	// Scope is the scope of Azure's credential; empty for Azure Resource Manager.
	Scope string
	// Profile is the profile whose role Provider has; empty for the ServiceAccount's own
	// identity. Source is the profile whose credentials replace the token, if any.
	Profile, Source string
}

// requests returns the requests with a token: one for each identity of the provider.
func requests(p provider.Provider, text string) []*Request {
	all := []*Request{{Provider: p, Token: text}}
	if p.Name == "aws" {
		all = append(all, profiles(p, text)...)
	}
	return all
}

// identified reports whether the pods have an identity of a cloud, and not only a token.
func identified(p *provider.Provider) bool {
	return p.Name == "gcp" || slices.ContainsFunc(p.Variables, func(v provider.Variable) bool {
		return v.Name == "AWS_ROLE_ARN" || v.Name == "AZURE_CLIENT_ID"
	})
}

// Answer is the response of a cloud.
type Answer struct {
	// Profile is Request.Profile.
	Profile string `json:"profile,omitempty"`
	// Operation is the last call, and URL is its address.
	Operation string `json:"operation"`
	URL       string `json:"url"`
	// Granted reports whether the cloud issued a credential.
	Granted bool `json:"granted"`
	// Identity is the identity of the credential.
	Identity string `json:"identity,omitempty"`
	// Expires is when the credential expires.
	Expires *time.Time `json:"expires,omitempty"`
	// Status, Code and Message describe an error.
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Cause is the cause of the error, and Repair has the commands that repair it.
	Cause  string `json:"cause,omitempty"`
	Repair string `json:"repair,omitempty"`
}

// Operations of the clouds.
const (
	AssumeRoleWithWebIdentity = "AssumeRoleWithWebIdentity"
	ClientCredentials         = "client_credentials"
	TokenExchange             = "token exchange"
	GenerateAccessToken       = "generateAccessToken"
)

const (
	// timeout limits a call.
	timeout = 30 * time.Second
	// maxResponse is more than a response of a cloud has.
	maxResponse = 256 << 10
	// maxMessage limits the length of an error.
	maxMessage = 2 << 10
)

// NewClient returns a client that uses the proxy of the environment and follows no
// redirect: a token must not go to another host. caFile has the certificates of the
// endpoint's CA; empty for the CAs of the system.
func NewClient(caFile string) (*http.Client, error) {
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: caFile}})
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	return &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// Do presents the token. An Answer that is not granted is not an error: Do returns
// an error if the cloud did not respond, or responded in another form.
func Do(ctx context.Context, client *http.Client, r *Request) (*Answer, error) {
	e := exchange{client: client, Request: r}
	switch r.Provider.Name {
	case "aws":
		return e.aws(ctx)
	case "azure":
		return e.azure(ctx)
	case "gcp":
		return e.gcp(ctx)
	}
	return nil, fmt.Errorf("provider %q has no exchange; only aws, azure and gcp have one", r.Provider.Name)
}

// FromPod returns the values that an injected pod has for a provider: the audience of its
// token, its variables and its credential file.
func FromPod(pod *injected.Pod, keys *annotations.Keys, name string) (provider.Provider, error) {
	p := provider.Provider{Name: name}
	index := slices.IndexFunc(keys.Providers, func(d *provider.Definition) bool { return d.Name == name })
	if index < 0 {
		return p, fmt.Errorf("provider %q does not exist", name)
	}
	d := keys.Providers[index]
	if !slices.Contains(pod.Providers, name) {
		return p, fmt.Errorf("annotation %s of the pod is %q and lacks %s", keys.Injected, strings.Join(pod.Providers, ","), name)
	}
	if content, found := pod.Files[name]; found {
		p.File = provider.File{Annotation: d.CredentialFile.Annotation, Path: d.CredentialFile.Path, Content: content}
	}
	at := slices.IndexFunc(pod.Tokens, func(t injected.Token) bool { return t.Provider == name })
	if at < 0 {
		return p, fmt.Errorf("the volumes of the pod have no token with the path %s", d.TokenPath)
	}
	token := &pod.Tokens[at]
	p.Token = provider.Token{Audience: token.Audience, ExpirationSeconds: token.ExpirationSeconds, Path: token.Path}
	at = slices.IndexFunc(pod.Containers, func(c injected.Container) bool { return c.Kind == injected.Ordinary })
	if at < 0 {
		return p, errors.New("the pod has no container")
	}
	for _, v := range pod.Containers[at].Variables { // all containers have the same
		if v.From == nil && slices.ContainsFunc(d.Variables, func(known provider.Variable) bool { return known.Name == v.Name }) {
			p.Variables = append(p.Variables, provider.Variable{Name: v.Name, Value: v.Value})
		}
	}
	return p, nil
}

// exchange is one call of Do.
type exchange struct {
	*Request
	client *http.Client
}

// variable returns the value of an environment variable as a container sees it.
func (e *exchange) variable(name string) string {
	for _, v := range e.Provider.Variables {
		if v.Name == name {
			return strings.ReplaceAll(v.Value, "$$", "$")
		}
	}
	return ""
}

// oauthResponse is the response of an endpoint for OAuth tokens (RFC 6749).
type oauthResponse struct {
	Credential  string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"`
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// expires returns when the credential expires.
func (r *oauthResponse) expires(asked time.Time) time.Time {
	return asked.Add(time.Duration(r.ExpiresIn) * time.Second)
}

// asJSON returns a function that decodes a body into a response.
func asJSON(response any) func(body []byte) error {
	return func(body []byte) error { return json.Unmarshal(body, response) }
}

// call is a POST request. bearer is the credential for it, if any.
type call struct{ operation, target, contentType, bearer, body string }

// post sends a form.
func (e *exchange) post(ctx context.Context, operation, target string, form url.Values, decode func(body []byte) error) (*Answer, error) {
	return e.send(ctx, &call{operation, target, "application/x-www-form-urlencoded", "", form.Encode()}, decode)
}

// send returns the Answer to complete, and decodes the body of the response.
func (e *exchange) send(ctx context.Context, c *call, decode func(body []byte) error) (*Answer, error) {
	target, err := e.at(c.target)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(target, "https://") {
		return nil, fmt.Errorf("the URL %q is not an https URL, and the request has the token", target)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", c.contentType)
	request.Header.Set("Accept", "application/json, text/xml")
	request.Header.Set("User-Agent", "lanyard")
	if c.bearer != "" {
		request.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	status, body, err := read(e.client, request, maxResponse)
	if err != nil {
		return nil, err
	}
	answer := &Answer{Profile: e.Profile, Operation: c.operation, URL: target, Status: status}
	if decode(body) != nil {
		return nil, answer.unexpected()
	}
	return answer, nil
}

// read sends a request and returns the status and the body of the response.
func read(client *http.Client, request *http.Request, limit int64) (status int, body []byte, err error) {
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("the response has more than %d bytes", limit)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read the response of %s: %w", request.URL, err)
	}
	return response.StatusCode, body, nil
}

// at returns the URL with the endpoint's scheme and host.
func (e *exchange) at(target string) (string, error) {
	if e.Endpoint == "" {
		return target, nil
	}
	endpoint, err := url.Parse(e.Endpoint)
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" || endpoint.User != nil || strings.Trim(endpoint.Path, "/") != "" || strings.ContainsAny(e.Endpoint, "?#") {
		return "", fmt.Errorf("endpoint %q is not an https URL without a path, such as https://sts.example.com", e.Endpoint)
	}
	u, err := url.Parse(target)
	if err != nil {
		return "", err
	}
	u.Scheme, u.Host = endpoint.Scheme, endpoint.Host
	return u.String(), nil
}

// ok reports whether the response has the status of a success.
func (a *Answer) ok() bool { return a.Status == http.StatusOK }

// granted completes the Answer with a credential's identity and end.
func (a *Answer) granted(identity string, expires time.Time) *Answer {
	expires = expires.UTC().Truncate(time.Second)
	a.Granted, a.Identity, a.Expires, a.Status = true, identity, &expires, 0
	return a
}

// denied completes the Answer with an error of the cloud. No part of the token is
// repeated.
func (a *Answer) denied(code, message string, secrets ...string) (*Answer, error) {
	if a.ok() || code == "" {
		return nil, a.unexpected()
	}
	for _, secret := range secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "[token]")
		}
	}
	a.Code, a.Message = code, texts.Cut(message, maxMessage)
	return a, nil
}

// unexpected returns the error for a response that is not of the cloud. The
// response is not shown: it may contain a credential.
func (a *Answer) unexpected() error {
	return fmt.Errorf("%s at %s: the response with status %d is not of this API; is there a proxy?", a.Operation, a.URL, a.Status)
}
