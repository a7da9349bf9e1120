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

// anthropic is the token endpoint of the Claude API, and its list of models.
//
// API: https://platform.claude.com/docs/en/manage-claude/wif-reference
type anthropic struct {
	*verifier

	rules map[string]trust.FederationRule
}

// NewAnthropic returns an API with the configured trust.
func NewAnthropic(config trust.Anthropic, tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
	a := &anthropic{newVerifier(tokens, log), map[string]trust.FederationRule{}}
	for _, rule := range config.FederationRules {
		if !strings.HasPrefix(rule.ID, "fdrl_") || rule.OrganizationID == "" || !claimsOf(&rule).complete() {
			return nil, fmt.Errorf("anthropic: federation rule %q: want fdrl_..., organizationID, issuer, audience and subject", rule.ID)
		}
		a.rules[rule.ID] = rule
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/oauth/token", a.token)
	mux.HandleFunc("GET /v1/models", a.use(`{"data": [], "has_more": false, "first_id": null, "last_id": null}`))
	return mux, nil
}

func claimsOf(rule *trust.FederationRule) *expected {
	return &expected{rule.Issuer, rule.Subject, []string{rule.Audience}}
}

func (a *anthropic) token(w http.ResponseWriter, r *http.Request) {
	var body struct {
		GrantType        string `json:"grant_type"`
		Assertion        string `json:"assertion"`
		FederationRuleID string `json:"federation_rule_id"`
		OrganizationID   string `json:"organization_id"`
	}
	a.exchange(w, r, journal.Entry{Cloud: journal.Anthropic, Operation: "jwt-bearer"}, &body, func(entry *journal.Entry) *journal.Failure {
		entry.Identity = body.FederationRuleID
		rule, found := a.rules[body.FederationRuleID]
		switch {
		case body.GrantType != "urn:ietf:params:oauth:grant-type:jwt-bearer" || body.Assertion == "":
			return &journal.Failure{Status: http.StatusBadRequest, Code: invalidRequest, Message: "want grant_type and assertion"}
		case !found || rule.OrganizationID != body.OrganizationID:
			return &journal.Failure{Status: http.StatusUnauthorized, Code: "invalid_grant", Message: "the organization does not have the federation rule"}
		}
		if distrusted := a.verify(r.Context(), body.Assertion, claimsOf(&rule), entry); distrusted != nil {
			return distrusted.failure(http.StatusUnauthorized, "invalid_grant")
		}
		return nil
	}, "sk-ant-oat01-", nil)
}
