// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package entra

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// discoverInstance returns all host names of the service.
func discoverInstance(w http.ResponseWriter, r *http.Request) {
	authorize, err := url.Parse(r.URL.Query().Get("authorization_endpoint"))
	if err != nil || authorize.Scheme != "https" {
		refuseDocument(w, &failure{http.StatusBadRequest, "invalid_request", 90014,
			"The required field 'authorization_endpoint' is missing from the credential. Ensure that you have all the necessary parameters for the login request.", nil})
		return
	}
	tenant, _, _ := strings.Cut(strings.TrimPrefix(authorize.Path, "/"), "/")
	hosts := []string{Host, "login.windows.net", "login.microsoft.com", "sts.windows.net"}
	writeDocument(w, http.StatusOK, map[string]any{
		"tenant_discovery_endpoint": "https://" + Host + "/" + tenant + "/v2.0/.well-known/openid-configuration",
		"api-version":               "1.1",
		"metadata": []map[string]any{{
			"preferred_network": Host,
			"preferred_cache":   "login.windows.net",
			"aliases":           hosts,
		}},
	})
}

// describeTenant returns a tenant's OpenID configuration.
func (e *entra) describeTenant(w http.ResponseWriter, r *http.Request) {
	tenant := r.PathValue("tenant")
	if _, found := e.tenants[strings.ToLower(tenant)]; !found {
		f := noTenant(tenant)
		f.name = "invalid_tenant" // the token endpoint uses another name
		refuseDocument(w, f)
		return
	}
	base := "https://" + Host + "/" + tenant
	writeDocument(w, http.StatusOK, map[string]any{
		"token_endpoint":                        base + "/oauth2/v2.0/token",
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt", "client_secret_basic", "self_signed_tls_client_auth"},
		"jwks_uri":                              base + "/discovery/v2.0/keys",
		"response_modes_supported":              []string{"query", "fragment", "form_post"},
		"subject_types_supported":               []string{"pairwise"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"response_types_supported":              []string{"code", "id_token", "code id_token", "id_token token"},
		"scopes_supported":                      []string{"openid", "profile", "email", "offline_access"},
		"issuer":                                base + "/v2.0",
		"authorization_endpoint":                base + "/oauth2/v2.0/authorize",
		"device_authorization_endpoint":         base + "/oauth2/v2.0/devicecode",
		"tenant_region_scope":                   "EU",
		"cloud_instance_name":                   "microsoftonline.com",
	})
}

// refuseDocument sends an error. It is not in the journal, because no
// credential was requested.
func refuseDocument(w http.ResponseWriter, f *failure) {
	writeDocument(w, f.status, f.body())
}

func writeDocument(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// Ignore the error: the client may have closed the connection.
	_ = json.NewEncoder(w).Encode(document)
}
