// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package entra emulates Microsoft Entra ID for Kubernetes tokens: the client
// credentials grant with a federated assertion or a secret, and the two
// metadata documents that the SDKs request first.
//
// Grant: https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
package entra

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// Host is the host name in all URLs of the documents.
const Host = "login.microsoftonline.com"

// entra is the service.
type entra struct {
	tokens  *issuer.Issuer
	journal *journal.Journal
	// tenants maps tenants to application IDs to applications, in lower case.
	tenants map[string]map[string]trust.Application
}

// New returns a handler with the configured trust.
func New(config trust.Entra, tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
	e := &entra{tokens, log, map[string]map[string]trust.Application{}}
	for _, tenant := range config.Tenants {
		id := strings.ToLower(tenant.TenantID)
		if _, twice := e.tenants[id]; id == "" || twice {
			return nil, fmt.Errorf("entra: got tenantId %q, want an ID without duplicates", tenant.TenantID)
		}
		e.tenants[id] = map[string]trust.Application{}
		for _, app := range tenant.Applications {
			if err := check(app); err != nil {
				return nil, fmt.Errorf("entra: tenant %s: %w", tenant.TenantID, err)
			}
			e.tenants[id][strings.ToLower(app.AppID)] = app
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /common/discovery/instance", discoverInstance)
	mux.HandleFunc("GET /{tenant}/v2.0/.well-known/openid-configuration", e.describeTenant)
	// SDKs send the path with and without a trailing slash.
	mux.HandleFunc("POST /{tenant}/oauth2/v2.0/token", e.token)
	mux.HandleFunc("POST /{tenant}/oauth2/v2.0/token/{$}", e.token)
	return mux, nil
}

func check(app trust.Application) error {
	if app.AppID == "" {
		return fmt.Errorf("application %q has no appId", app.DisplayName)
	}
	for _, credential := range app.FederatedIdentityCredentials {
		if credential.Issuer == "" || credential.Subject == "" || len(credential.Audiences) != 1 {
			return fmt.Errorf("application %s: got federated identity credential %q with issuer %q, subject %q and audiences %q, want exactly one of each",
				app.AppID, credential.Name, credential.Issuer, credential.Subject, credential.Audiences)
		}
	}
	for _, password := range app.PasswordCredentials {
		if password.SecretText == "" {
			return fmt.Errorf("application %s: a password credential has no secretText", app.AppID)
		}
	}
	return nil
}
