// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package apis

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// OpenAI is the token endpoint of the OpenAI API, and its list of models.
//
// API: https://developers.openai.com/api/reference/workload-identity-federation
type OpenAI struct {
	*verifier

	providers map[string]trust.IdentityProvider
}

// NewOpenAI returns an API with the configured trust.
func NewOpenAI(config trust.OpenAI, tokens *issuer.Issuer, log *journal.Journal) (*OpenAI, error) {
	o := &OpenAI{newVerifier(tokens, log), map[string]trust.IdentityProvider{}}
	for _, provider := range config.IdentityProviders {
		for _, mapping := range provider.Mappings {
			if want := (&expected{provider.Issuer, mapping.Subject, []string{provider.Audience}}); mapping.ServiceAccountID == "" || !want.complete() {
				return nil, fmt.Errorf("openai: identity provider %q: want issuer and audience, and sub and serviceAccountID of each mapping", provider.ID)
			}
		}
		if provider.ID == "" || len(provider.Mappings) == 0 {
			return nil, fmt.Errorf("openai: identity provider %q: want an id and mappings", provider.ID)
		}
		o.providers[provider.ID] = provider
	}
	return o, nil
}

// ServeHTTP handles one request.
func (o *OpenAI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth/token", o.exchange)
	mux.HandleFunc("GET /v1/models", o.use(`{"object": "list", "data": []}`))
	mux.ServeHTTP(w, r)
}

func (o *OpenAI) exchange(w http.ResponseWriter, r *http.Request) {
	entry := &journal.Entry{Cloud: journal.OpenAI, Operation: journal.TokenExchange, Status: http.StatusBadRequest}
	var body struct {
		GrantType          string `json:"grant_type"`
		SubjectToken       string `json:"subject_token"`
		SubjectTokenType   string `json:"subject_token_type"`
		IdentityProviderID string `json:"identity_provider_id"`
		ServiceAccountID   string `json:"service_account_id"`
	}
	if !o.decode(w, r, entry, &body) {
		return
	}
	entry.Identity = body.ServiceAccountID
	if body.GrantType != "urn:ietf:params:oauth:grant-type:token-exchange" || body.SubjectTokenType != "urn:ietf:params:oauth:token-type:jwt" || body.SubjectToken == "" {
		o.oauthError(w, r, entry, "invalid_request", "want grant_type, subject_token_type and subject_token", nil)
		return
	}
	entry.Status = http.StatusUnauthorized
	provider, found := o.providers[body.IdentityProviderID]
	if !found {
		o.oauthError(w, r, entry, "invalid_request", "the identity provider is not known", nil)
		return
	}
	distrusted := o.check(r, &provider, body.SubjectToken, body.ServiceAccountID, entry)
	if distrusted != nil {
		code := "invalid_subject_token"
		if distrusted.part == ofSubject {
			entry.Status, code = http.StatusForbidden, "access_denied"
		}
		o.oauthError(w, r, entry, code, distrusted.text(), distrusted.err)
		return
	}
	token := o.issue("", entry)
	o.journal.Send(w, r, journal.JSON(*entry, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": int(lifetime.Seconds()),
		"issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
	}))
}

// check compares a token with the provider and its mappings to the service account.
func (o *OpenAI) check(r *http.Request, provider *trust.IdentityProvider, token, serviceAccount string, entry *journal.Entry) *distrust {
	result := &distrust{part: ofSubject}
	// A service account without a mapping is mapped from nobody.
	mappings := append(slices.Clone(provider.Mappings), trust.ServiceAccountMapping{ServiceAccountID: serviceAccount})
	for _, mapping := range mappings {
		if mapping.ServiceAccountID != serviceAccount {
			continue
		}
		want := &expected{provider.Issuer, mapping.Subject, []string{provider.Audience}}
		if result = o.verify(r.Context(), token, want, entry); result == nil {
			return nil
		}
	}
	return result
}
