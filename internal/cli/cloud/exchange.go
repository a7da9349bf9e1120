// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

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
}

// Answer is the response of a cloud.
type Answer struct {
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
// redirect: a token must not go to another host. caPEM has the certificates of the
// endpoint's CA; nil for the CAs of the system.
func NewClient(caPEM []byte) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caPEM != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(caPEM) {
			return nil, errors.New("endpoint's CA: got no certificate in PEM, want at least one")
		}
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
	return nil, fmt.Errorf("got provider %q, want aws, azure or gcp: others have no exchange", r.Provider.Name)
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

// post sends a form and returns the Answer to complete, and the response's body.
func (e *exchange) post(ctx context.Context, operation, target string, form url.Values) (*Answer, []byte, error) {
	return e.send(ctx, operation, target, "application/x-www-form-urlencoded", "", form.Encode())
}

// send sends a POST request. bearer is the credential for it, if any.
func (e *exchange) send(ctx context.Context, operation, target, contentType, bearer, body string) (*Answer, []byte, error) {
	target, err := e.at(target)
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasPrefix(target, "https://") {
		return nil, nil, fmt.Errorf("got the URL %q, want https: the request has the token", target)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json, text/xml")
	request.Header.Set("User-Agent", "lanyard")
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	response, err := e.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read the response of %s: %w", target, err)
	case len(text) > maxResponse:
		return nil, nil, fmt.Errorf("read the response of %s: got more than %d bytes", target, maxResponse)
	}
	return &Answer{Operation: operation, URL: target, Status: response.StatusCode}, text, nil
}

// at returns the URL with the endpoint's scheme and host.
func (e *exchange) at(target string) (string, error) {
	if e.Endpoint == "" {
		return target, nil
	}
	endpoint, err := url.Parse(e.Endpoint)
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" || endpoint.User != nil || strings.Trim(endpoint.Path, "/") != "" || strings.ContainsAny(e.Endpoint, "?#") {
		return "", fmt.Errorf("endpoint: got %q, want an https URL without a path, such as https://sts.example.com", e.Endpoint)
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
func (a *Answer) denied(code, message string, secrets ...string) *Answer {
	for _, secret := range secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "[token]")
		}
	}
	a.Code, a.Message = code, texts.Cut(message, maxMessage)
	return a
}

// unexpected returns the error for a response that is not of the cloud. The
// response is not shown: it may contain a credential.
func (a *Answer) unexpected() error {
	return fmt.Errorf("%s at %s: got status %d and a response that is not of this API; is there a proxy?", a.Operation, a.URL, a.Status)
}
