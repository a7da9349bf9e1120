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

// openAI is the token endpoint of the OpenAI API, and its list of models.
//
// API: https://developers.openai.com/api/reference/workload-identity-federation
type openAI struct {
	*verifier

	providers map[string]trust.IdentityProvider
}

// NewOpenAI returns an API with the configured trust.
func NewOpenAI(config trust.OpenAI, tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
	o := &openAI{newVerifier(tokens, log), map[string]trust.IdentityProvider{}}
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
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth/token", o.token)
	mux.HandleFunc("GET /v1/models", o.use(`{"object": "list", "data": []}`))
	return mux, nil
}

func (o *openAI) token(w http.ResponseWriter, r *http.Request) {
	var body struct {
		GrantType          string `json:"grant_type"`
		SubjectToken       string `json:"subject_token"`
		SubjectTokenType   string `json:"subject_token_type"`
		IdentityProviderID string `json:"identity_provider_id"`
		ServiceAccountID   string `json:"service_account_id"`
	}
	o.exchange(w, r, journal.Entry{Cloud: journal.OpenAI, Operation: "token-exchange"}, &body, func(entry *journal.Entry) *journal.Failure {
		entry.Identity = body.ServiceAccountID
		if body.GrantType != "urn:ietf:params:oauth:grant-type:token-exchange" || body.SubjectTokenType != "urn:ietf:params:oauth:token-type:jwt" || body.SubjectToken == "" {
			return &journal.Failure{Status: http.StatusBadRequest, Code: invalidRequest, Message: "want grant_type, subject_token_type and subject_token"}
		}
		provider, found := o.providers[body.IdentityProviderID]
		if !found {
			return &journal.Failure{Status: http.StatusUnauthorized, Code: invalidRequest, Message: "the identity provider is not known"}
		}
		distrusted := o.check(r, &provider, body.SubjectToken, body.ServiceAccountID, entry)
		switch {
		case distrusted == nil:
			return nil
		case distrusted.part == ofSubject:
			return distrusted.failure(http.StatusForbidden, "access_denied")
		}
		return distrusted.failure(http.StatusUnauthorized, "invalid_subject_token")
	}, "", map[string]any{"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"})
}

// check compares a token with the provider and its mappings to the service account.
func (o *openAI) check(r *http.Request, provider *trust.IdentityProvider, token, serviceAccount string, entry *journal.Entry) *distrust {
	result := &distrust{part: ofSubject}
	// A service account without a mapping cannot be used.
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
