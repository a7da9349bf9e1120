// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	_ "embed" // the causes
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cause"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/token"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// Request is a token with the cloud to present it to.
type Request struct {
	// Namespace and ServiceAccount are the names of the ServiceAccount, and Prefix starts the
	// keys of Lanyard's annotations: for the repair of a denial.
	Namespace, ServiceAccount, Prefix string
	// Provider is the name of the cloud's provider.
	Provider string
	// Audience and ExpirationSeconds are of the tokens in the ServiceAccount's pods.
	Audience          string
	ExpirationSeconds int64
	// Variables are the provider's variables as a container of these pods sees them, and File
	// is the text of the credential file, if any.
	Variables map[string]string
	File      string
	// Token is the ServiceAccount token.
	Token string
	// Endpoint replaces the scheme and the host of every URL, as in
	// https://sts.example.com; empty for the cloud's own.
	Endpoint string
	// Scope is the scope of Azure's credential; empty for Azure Resource Manager.
	Scope string
	// Profile is the profile whose role Variables has; empty for the ServiceAccount's own
	// identity. Source is the profile whose credentials replace the token, if any.
	Profile, Source string
}

// FromPod returns the Request of an injected pod of a ServiceAccount to a provider, without a
// token.
func FromPod(pod *injected.Pod, s *annotations.Settings, serviceAccount *metav1.ObjectMeta, name string) (*Request, error) {
	index := slices.IndexFunc(s.Providers, func(d *annotations.Provider) bool { return d.Name == name })
	if index < 0 {
		return nil, fmt.Errorf("provider %q does not exist", name)
	}
	d := s.Providers[index]
	at := slices.IndexFunc(pod.Tokens, func(t injected.Token) bool { return t.Provider == name })
	container := slices.IndexFunc(pod.Containers, func(c injected.Container) bool { return c.Kind == injected.Ordinary })
	switch {
	case !slices.Contains(pod.Providers, name):
		return nil, fmt.Errorf("annotation %s of the pod is %q and lacks %s", annotations.Injected, strings.Join(pod.Providers, ","), name)
	case at < 0:
		return nil, fmt.Errorf("the volumes of the pod have no token with the path %s", d.TokenPath)
	case container < 0:
		return nil, errors.New("the pod has no container")
	}
	r := &Request{
		Namespace: serviceAccount.Namespace, ServiceAccount: serviceAccount.Name, Prefix: annotations.Prefix,
		Provider: name, Audience: pod.Tokens[at].Audience, ExpirationSeconds: pod.Tokens[at].ExpirationSeconds,
		Variables: map[string]string{}, File: pod.Files[name],
	}
	for _, v := range pod.Containers[container].Variables { // all containers have the same
		switch {
		case !slices.ContainsFunc(d.Variables, func(known annotations.Variable) bool { return known.Name == v.Name }):
		case v.IsPodName():
			r.Variables[v.Name] = pod.Name
		case v.From == nil:
			r.Variables[v.Name] = strings.ReplaceAll(v.Value, "$$", "$")
		}
	}
	return r, nil
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

const (
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

// api is a cloud that exchanges tokens.
type api struct {
	// title is the name for people.
	title string
	// identity is the variable without which pods have a token, but no identity; empty if
	// pods with the token always have an identity.
	identity string
	exchange func(*Request, context.Context, *http.Client) (*Answer, error)
	trust    func(*Token) (Trust, error)
}

// apis returns the clouds, by the names of their providers.
func apis() map[string]api {
	return map[string]api{
		"aws":   {"AWS", "AWS_ROLE_ARN", (*Request).aws, trustAWS},
		"azure": {"Azure", "AZURE_CLIENT_ID", (*Request).azure, trustAzure},
		"gcp":   {"Google Cloud", "", (*Request).gcp, trustGCP},
	}
}

func clouds() []string { return slices.Sorted(maps.Keys(apis())) }

// NewTrust returns the configuration with which one of the clouds accepts the tokens.
func NewTrust(cloud string, token *Token) (Trust, error) { return apis()[cloud].trust(token) }

// Do presents the token. An Answer that is not granted has the cause and its repair, if they
// are known. It is not an error: Do returns an error if the cloud did not respond, or
// responded in another form.
func Do(ctx context.Context, client *http.Client, r *Request) (*Answer, error) {
	cloud, found := apis()[r.Provider]
	if !found {
		return nil, fmt.Errorf("provider %q has no exchange; only aws, azure and gcp have one", r.Provider)
	}
	answer, err := cloud.exchange(r, ctx, client)
	if err != nil || answer.Granted {
		return answer, err
	}
	return answer, answer.explain(r)
}

// call is a POST request. bearer is the credential for it, if any.
type call struct{ operation, target, contentType, bearer, body string }

func form(operation, target string, values url.Values) *call {
	return &call{operation, target, "application/x-www-form-urlencoded", "", values.Encode()}
}

// reply is the body of a response: a credential's identity and end, or an error.
type reply struct {
	granted       bool
	identity      string
	expires       time.Time
	code, message string
}

// send sends the call, and returns the Answer that is in the body of the response.
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
	status, _, body, err := read(client, request, maxResponse)
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

func read(client *http.Client, request *http.Request, limit int64) (status int, header http.Header, body []byte, err error) {
	response, err := client.Do(request)
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

// reply returns the response to a request that was sent at the time asked.
func (r *oauthResponse) reply(identity string, asked time.Time) reply {
	return reply{r.Credential != "", identity, asked.Add(time.Duration(r.ExpiresIn) * time.Second), r.Error, r.Description}
}

//go:embed causes.yaml
var causesText []byte

// explain adds the cause and the repair of a denial to the Answer.
func (a *Answer) explain(r *Request) error {
	all, err := cause.Parse(causesText)
	known := cause.Find(all[r.Provider], a.Code, a.Message)
	if known == nil {
		return err
	}
	a.Cause, a.Repair = known.Text, r.commands("repair", known.Repair)
	if a.Repair != "" && known.Terraform && r.Profile == "" {
		a.Repair += "# As Terraform: lanyard trust " + r.Provider + " " + Quote(r.ServiceAccount) + " --namespace " + Quote(r.Namespace) + " --output terraform\n"
	}
	return nil
}

// commands returns a part of the trust configuration with which the cloud would accept the token;
// empty if the cloud needs no such part, or can never accept the token.
func (r *Request) commands(format, part string) string {
	claims, err := token.Parse(r.Token)
	if err != nil {
		return ""
	}
	values := annotations.Values{"role-arn": r.Variables["AWS_ROLE_ARN"], "client-id": r.Variables["AZURE_CLIENT_ID"]}
	if file, err := r.credentialFile(); err == nil {
		values["workload-identity-provider"] = strings.TrimPrefix(file.Audience, "//iam.googleapis.com/")
		values["service-account"] = impersonated(file.ImpersonationURL)
	}
	trust, _ := NewTrust(r.Provider, &Token{ // an error results in no text
		Issuer: claims.Issuer, Namespace: r.Namespace, ServiceAccount: r.ServiceAccount, Audience: r.Audience, Prefix: r.Prefix, Values: values,
	})
	return trust.Text(format, part)
}
