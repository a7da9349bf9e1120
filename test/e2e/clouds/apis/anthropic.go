// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package apis

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// Anthropic is the token endpoint of the Claude API, and its list of models.
//
// API: https://platform.claude.com/docs/en/manage-claude/wif-reference
type Anthropic struct {
	*verifier

	rules map[string]trust.FederationRule
}

// NewAnthropic returns an API with the configured trust.
func NewAnthropic(config trust.Anthropic, tokens *issuer.Issuer, log *journal.Journal) (*Anthropic, error) {
	a := &Anthropic{newVerifier(tokens, log), map[string]trust.FederationRule{}}
	for _, rule := range config.FederationRules {
		if !strings.HasPrefix(rule.ID, "fdrl_") || rule.OrganizationID == "" || !claimsOf(&rule).complete() {
			return nil, fmt.Errorf("anthropic: federation rule %q: want fdrl_..., organizationID, issuer, audience and subject", rule.ID)
		}
		a.rules[rule.ID] = rule
	}
	return a, nil
}

func claimsOf(rule *trust.FederationRule) *expected {
	return &expected{rule.Issuer, rule.Subject, []string{rule.Audience}}
}

// ServeHTTP handles one request.
func (a *Anthropic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/oauth/token", a.exchange)
	mux.HandleFunc("GET /v1/models", a.use(`{"data": [], "has_more": false, "first_id": null, "last_id": null}`))
	mux.ServeHTTP(w, r)
}

func (a *Anthropic) exchange(w http.ResponseWriter, r *http.Request) {
	entry := &journal.Entry{Cloud: journal.Anthropic, Operation: journal.JWTBearer, Status: http.StatusBadRequest}
	var body struct {
		GrantType        string `json:"grant_type"`
		Assertion        string `json:"assertion"`
		FederationRuleID string `json:"federation_rule_id"`
		OrganizationID   string `json:"organization_id"`
	}
	if !a.decode(w, r, entry, &body) {
		return
	}
	entry.Identity = body.FederationRuleID
	rule, found := a.rules[body.FederationRuleID]
	switch {
	case body.GrantType != "urn:ietf:params:oauth:grant-type:jwt-bearer" || body.Assertion == "":
		a.oauthError(w, r, entry, "invalid_request", "want grant_type and assertion", nil)
		return
	case !found || rule.OrganizationID != body.OrganizationID:
		entry.Status = http.StatusUnauthorized
		a.oauthError(w, r, entry, "invalid_grant", "the organization does not have the federation rule", nil)
		return
	}
	if distrusted := a.verify(r.Context(), body.Assertion, claimsOf(&rule), entry); distrusted != nil {
		entry.Status = http.StatusUnauthorized
		a.oauthError(w, r, entry, "invalid_grant", distrusted.text(), distrusted.err)
		return
	}
	token := a.issue("sk-ant-oat01-", entry)
	a.journal.Send(w, r, journal.JSON(*entry, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": int(lifetime.Seconds()),
	}))
}
