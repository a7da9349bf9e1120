// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package entra emulates what Microsoft Entra ID does with a Kubernetes token:
// the client credentials grant with a federated assertion or with a secret, and
// the two documents of metadata that its libraries ask for before.
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

// Host is the one of all the documents' URLs.
const Host = "login.microsoftonline.com"

// Entra is the service.
type Entra struct {
	tokens  *issuer.Issuer
	journal *journal.Journal
	// tenants are applications by id by tenant, in lower case.
	tenants map[string]map[string]trust.Application
	mux     *http.ServeMux
}

// New returns an Entra that trusts as configured.
func New(config trust.Entra, tokens *issuer.Issuer, log *journal.Journal) (*Entra, error) {
	e := &Entra{tokens: tokens, journal: log, tenants: map[string]map[string]trust.Application{}, mux: http.NewServeMux()}
	for _, tenant := range config.Tenants {
		id := strings.ToLower(tenant.TenantID)
		if _, twice := e.tenants[id]; id == "" || twice {
			return nil, fmt.Errorf("entra: got tenantId %q, want one, each once", tenant.TenantID)
		}
		e.tenants[id] = map[string]trust.Application{}
		for _, app := range tenant.Applications {
			if err := check(app); err != nil {
				return nil, fmt.Errorf("entra: tenant %s: %w", tenant.TenantID, err)
			}
			e.tenants[id][strings.ToLower(app.AppID)] = app
		}
	}
	e.mux.HandleFunc("GET /common/discovery/instance", e.discoverInstance)
	e.mux.HandleFunc("GET /{tenant}/v2.0/.well-known/openid-configuration", e.describeTenant)
	// The libraries write the path with a slash at its end and without.
	e.mux.HandleFunc("POST /{tenant}/oauth2/v2.0/token", e.token)
	e.mux.HandleFunc("POST /{tenant}/oauth2/v2.0/token/{$}", e.token)
	return e, nil
}

// ServeHTTP answers a request.
func (e *Entra) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mux.ServeHTTP(w, r)
}

func check(app trust.Application) error {
	if app.AppID == "" {
		return fmt.Errorf("got application %q without appId, want one", app.DisplayName)
	}
	for _, credential := range app.FederatedIdentityCredentials {
		if credential.Issuer == "" || credential.Subject == "" || len(credential.Audiences) != 1 {
			return fmt.Errorf("application %s: got federated identity credential %q with issuer %q, subject %q and audiences %q, want one of each",
				app.AppID, credential.Name, credential.Issuer, credential.Subject, credential.Audiences)
		}
	}
	for _, password := range app.PasswordCredentials {
		if password.SecretText == "" {
			return fmt.Errorf("application %s: got a password credential without secretText, want one", app.AppID)
		}
	}
	return nil
}
