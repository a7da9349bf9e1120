// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exchange presents the token of a ServiceAccount to a cloud, as the cloud's SDK in a pod
// does, for "lanyard token", "lanyard check" and "lanyard-webhook verify". No function returns a
// credential. causes.yaml lists the causes of the clouds' errors.
package exchange

import (
	"cmp"
	"context"
	_ "embed" // the causes
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cause"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Request is a token, and the cloud to present it to.
type Request struct {
	// Namespace and ServiceAccount name the ServiceAccount. Repairs contain them.
	Namespace, ServiceAccount string
	// Provider is the name of the cloud's provider.
	Provider string
	// Audience and ExpirationSeconds of the projected token.
	Audience          string
	ExpirationSeconds int64
	// Variables are the provider's environment variables in the container, and File is the
	// content of the credential file, if any.
	Variables map[string]string
	File      string
	// Token is the ServiceAccount token.
	Token string
	// Endpoint replaces the scheme and the host of every URL, as in
	// https://sts.example.com. If empty, the cloud's own is used.
	Endpoint string
	// Scope is the scope of Azure's credential. The default is Azure Resource Manager.
	Scope string
	// Profile is the AWS profile to test, or empty for the ServiceAccount's own identity.
	// Source is its source profile, if any, whose credentials replace the token.
	Profile, Source string
}

// Answer is the response of a cloud.
type Answer struct {
	// Profile is Request.Profile.
	Profile string `json:"profile,omitempty"`
	// Operation and URL describe the last call.
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
	// Cause describes the cause of the error, and Repair contains the commands that fix it.
	Cause  string `json:"cause,omitempty"`
	Repair string `json:"repair,omitempty"`

	// Known is the matching entry of causes.yaml, or nil if there is none.
	Known *cause.Cause `json:"-"`
}

// Values returns the values of the provider's parameters that identify what the token is for.
func (r *Request) Values() annotations.Values {
	values := annotations.Values{"role-arn": r.Variables["AWS_ROLE_ARN"], "client-id": r.Variables["AZURE_CLIENT_ID"]}
	if file, err := r.CredentialFile(); err == nil {
		values["workload-identity-provider"] = strings.TrimPrefix(file.Audience, audiencePrefix)
		values["service-account"] = Impersonated(file.ImpersonationURL)
	}
	return values
}

const (
	timeout = 30 * time.Second
	// maxResponse limits a response. It is larger than any valid one.
	maxResponse = 256 << 10
	// maxMessage limits the length of an error.
	maxMessage = 2 << 10
)

// NewClient returns a client that uses the proxy of the environment and follows no
// redirects, because a token must not go to another host. caFile contains the CA
// certificates of the endpoint. If it is empty, the CAs of the system are used.
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

// Cloud is a cloud that exchanges tokens.
type Cloud struct {
	// Title is the display name.
	Title string
	// Identity is the variable that names the identity. It is empty if every token has an
	// identity.
	Identity string
	// TokenFile and File are the variables with the paths of the token and of the credential file.
	// If TokenFile is empty, the credential file contains the path of the token.
	TokenFile, File string

	present func(*Request, context.Context, *http.Client) (*Answer, error)
}

// Asks reports whether the variables of a pod contain an identity of the cloud.
func (c *Cloud) Asks(getenv func(name string) string) bool {
	// If the identity is not in a variable, only the credential file shows it.
	return getenv(cmp.Or(c.Identity, c.File)) != ""
}

// Clouds returns the clouds, by the names of their providers.
func Clouds() map[string]Cloud {
	return map[string]Cloud{
		"aws":   {"AWS", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONFIG_FILE", (*Request).aws},
		"azure": {"Azure", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "", (*Request).azure},
		"gcp":   {"Google Cloud", "", "", "GOOGLE_APPLICATION_CREDENTIALS", (*Request).gcp},
	}
}

// Do presents the token to the cloud. A denial is not an error but an Answer, with its cause
// if known. Do returns an error if the cloud did not respond or sent an unexpected response.
func Do(ctx context.Context, client *http.Client, r *Request) (*Answer, error) {
	cloud, found := Clouds()[r.Provider]
	if !found {
		return nil, fmt.Errorf("provider %q has no exchange; only aws, azure and gcp have one", r.Provider)
	}
	answer, err := cloud.present(r, ctx, client)
	if err != nil || answer.Granted {
		return answer, err
	}
	all, err := Causes()
	if answer.Known = cause.Find(all[r.Provider], answer.Code, answer.Message); answer.Known != nil {
		answer.Cause = answer.Known.Text
	}
	return answer, err
}

//go:embed causes.yaml
var causesText []byte

// Causes returns the causes of denials, by the names of the providers.
func Causes() (map[string][]cause.Cause, error) { return cause.Parse(causesText) }

// call is a POST request. bearer is its bearer token, if any.
type call struct{ operation, target, contentType, bearer, body string }

func form(operation, target string, values url.Values) *call {
	return &call{operation, target, "application/x-www-form-urlencoded", "", values.Encode()}
}

// reply is a parsed response: the identity and expiry of a credential, or an error.
type reply struct {
	granted       bool
	identity      string
	expires       time.Time
	code, message string
}

// send sends the call and parses the response.
func (r *Request) send(ctx context.Context, client *http.Client, c *call, decode func(body []byte) (reply, error)) (*Answer, error) {
	target, err := r.at(c.target)
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
	status, _, body, err := Read(client, request, maxResponse)
	if err != nil {
		return nil, err
	}
	answer := &Answer{Profile: r.Profile, Operation: c.operation, URL: target}
	got, err := decode(body)
	switch ok := status == http.StatusOK; {
	case err == nil && ok && got.granted:
		expires := got.expires.UTC().Truncate(time.Second)
		answer.Granted, answer.Identity, answer.Expires = true, got.identity, &expires
	case err == nil && !ok && got.code != "":
		for _, secret := range []string{r.Token, c.bearer} { // a cloud may repeat a secret
			if secret != "" {
				got.message = strings.ReplaceAll(got.message, secret, "[token]")
			}
		}
		answer.Status, answer.Code, answer.Message = status, got.code, texts.Cut(got.message, maxMessage)
	default: // the response is not shown: it may contain a credential
		return nil, fmt.Errorf("%s at %s: the response with status %d is not of this API; is there a proxy?", c.operation, target, status)
	}
	return answer, nil
}

// Read sends a request, and returns the status, the header and the body of the response, of at
// most limit bytes.
func Read(client *http.Client, request *http.Request, limit int64) (status int, header http.Header, body []byte, err error) {
	response, err := client.Do(request) //nolint:gosec // the callers choose the host
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("the response has more than %d bytes", limit)
	}
	if err != nil {
		return 0, nil, nil, fmt.Errorf("read the response of %s: %w", request.URL, err)
	}
	return response.StatusCode, response.Header, body, nil
}

// at returns the URL with the endpoint's scheme and host.
func (r *Request) at(target string) (string, error) {
	if r.Endpoint == "" {
		return target, nil
	}
	endpoint, err := url.Parse(r.Endpoint)
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" || endpoint.User != nil || strings.Trim(endpoint.Path, "/") != "" || strings.ContainsAny(r.Endpoint, "?#") {
		return "", fmt.Errorf("endpoint %q is not an https URL without a path, such as https://sts.example.com", r.Endpoint)
	}
	u, err := url.Parse(target)
	if err != nil {
		return "", err
	}
	u.Scheme, u.Host = endpoint.Scheme, endpoint.Host
	return u.String(), nil
}

// oauthResponse is the response of an endpoint for OAuth tokens (RFC 6749).
type oauthResponse struct {
	Credential  string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"`
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// reply converts the response to a request that was sent at the time asked.
func (r *oauthResponse) reply(identity string, asked time.Time) reply {
	return reply{r.Credential != "", identity, asked.Add(time.Duration(r.ExpiresIn) * time.Second), r.Error, r.Description}
}
