// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trust

// Anthropic is the configuration of an organization of the Claude API.
type Anthropic struct {
	FederationRules []FederationRule `json:"federationRules,omitempty"`
}

// FederationRule maps tokens to a service account.
type FederationRule struct {
	// ID is fdrl_...
	ID             string `json:"id"`
	OrganizationID string `json:"organizationID"`
	// Issuer is the URL of the federation issuer of the rule.
	Issuer   string `json:"issuer"`
	Audience string `json:"audience"`
	Subject  string `json:"subject"`
}

// OpenAI is the configuration of an organization of the OpenAI API.
type OpenAI struct {
	IdentityProviders []IdentityProvider `json:"identityProviders,omitempty"`
}

// IdentityProvider is a workload identity provider with its mappings.
type IdentityProvider struct {
	ID       string                  `json:"id"`
	Issuer   string                  `json:"issuer"`
	Audience string                  `json:"audience"`
	Mappings []ServiceAccountMapping `json:"mappings,omitempty"`
}

// ServiceAccountMapping lets a subject use a service account.
type ServiceAccountMapping struct {
	Subject          string `json:"sub"`
	ServiceAccountID string `json:"serviceAccountID"`
}

// Snowflake is the configuration of a Snowflake account.
type Snowflake struct {
	// Account is the identifier of the account, such as example-production.
	Account string          `json:"account,omitempty"`
	Users   []SnowflakeUser `json:"users,omitempty"`
}

// SnowflakeUser is a service user with the parameter WORKLOAD_IDENTITY.
type SnowflakeUser struct {
	Name             string           `json:"name"`
	WorkloadIdentity WorkloadIdentity `json:"WORKLOAD_IDENTITY"`
}

// WorkloadIdentity uses the names of Snowflake's SQL.
type WorkloadIdentity struct {
	// Type is OIDC.
	Type             string   `json:"TYPE"`
	Issuer           string   `json:"ISSUER"`
	Subject          string   `json:"SUBJECT"`
	OIDCAudienceList []string `json:"OIDC_AUDIENCE_LIST"`
}
