// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// startTimeout is how long the program waits for the apiserver to answer.
const startTimeout = 30 * time.Second

// apiserverAudiences lists the audiences that the apiserver takes for its own,
// as far as they can be told: the names that clusters commonly use, the issuer
// (which --api-audiences defaults to), and those of the program's own token.
// No injected token may have one of them.
func apiserverAudiences(ctx context.Context, config *rest.Config, log logr.Logger) ([]string, error) {
	audiences := []string{
		"kubernetes", "kubernetes.default.svc", "api",
		"https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local", "https://kubernetes.default",
	}
	issuer, err := issuer(ctx, config, log)
	if err != nil {
		return nil, err
	}
	if issuer != "" {
		audiences = append(audiences, issuer)
	}
	if config.BearerTokenFile != "" {
		own, err := tokenAudiences(config.BearerTokenFile)
		if err != nil {
			return nil, err
		}
		audiences = append(audiences, own...)
	}
	slices.Sort(audiences)
	return slices.Compact(audiences), nil
}

// warnOfReservedAudiences tells of defaults that are the apiserver's own:
// accounts that rely on them are refused.
func warnOfReservedAudiences(defaults *annotations.Defaults, log logr.Logger) {
	for _, audience := range []string{defaults.AWSAudience, defaults.AzureAudience, defaults.GCPAudience} {
		if slices.Contains(defaults.ReservedAudiences, audience) {
			log.Info("A default audience is one of the API server's own; accounts that name no other are refused", "audience", audience)
		}
	}
}

// issuer asks the apiserver's OpenID Connect discovery, which every service
// account may read by default (ClusterRole
// system:service-account-issuer-discovery). Where it may not, there is none.
func issuer(ctx context.Context, config *rest.Config, log logr.Logger) (string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", fmt.Errorf("client of the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("address of the API server: %w", err)
	}
	url := base.JoinPath("/.well-known/openid-configuration").String()
	var document []byte
	err = wait.PollUntilContextTimeout(ctx, time.Second, startTimeout, true, func(ctx context.Context) (bool, error) {
		status, body, err := get(ctx, client, url)
		switch {
		case err == nil && status == http.StatusOK:
			document = body
			return true, nil
		case status == http.StatusForbidden, status == http.StatusUnauthorized, status == http.StatusNotFound:
			log.Info("The issuer's discovery document cannot be read; an audience of the API server's own that is not a common one will not be refused", "status", status)
			return true, nil
		}
		log.Info("Waiting for the API server", "host", config.Host, "status", status, "error", fmt.Sprint(err))
		return false, nil
	})
	if err != nil {
		return "", fmt.Errorf("reach the API server at %s: %w", config.Host, err)
	}
	if document == nil {
		return "", nil
	}
	var configuration struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(document, &configuration); err != nil {
		return "", fmt.Errorf("read %s/.well-known/openid-configuration: %w", config.Host, err)
	}
	return configuration.Issuer, nil
}

// maxDocument is far more than a discovery document has.
const maxDocument = 1 << 20

func get(ctx context.Context, client *http.Client, url string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout/3)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxDocument))
	return response.StatusCode, body, err
}

// audiences are one string or several (RFC 7519, section 4.1.3).
type audiences []string

// UnmarshalJSON reads either form.
func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// tokenAudiences reads the audiences of the service account token in a file.
// Its signature is nobody's concern here: it is the program's own.
func tokenAudiences(file string) ([]string, error) {
	token, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the program's own token: %w", err)
	}
	parts := strings.Split(strings.TrimSpace(string(token)), ".")
	if len(parts) != 3 {
		return nil, nil // no JSON Web Token: no audience
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, fmt.Errorf("read the claims of the program's own token %s: %w", file, err)
	}
	var parsed struct {
		Audiences audiences `json:"aud"`
	}
	if err := json.Unmarshal(claims, &parsed); err != nil {
		return nil, fmt.Errorf("read the claims of the program's own token %s: %w", file, err)
	}
	return parsed.Audiences, nil
}
