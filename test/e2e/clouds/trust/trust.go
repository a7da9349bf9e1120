// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trust reads the emulated clouds' trust file. It contains parts of
// each cloud's configuration in the format of that cloud; the cloud packages
// interpret them.
package trust

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Trust is the complete file.
type Trust struct {
	AWS    AWS    `json:"aws,omitzero"`
	Entra  Entra  `json:"entra,omitzero"`
	Google Google `json:"google,omitzero"`
	// Custom providers, see examples/providers.
	Alibaba Alibaba `json:"alibaba,omitzero"`
	IBM     IBM     `json:"ibm,omitzero"`
	Vault   Vault   `json:"vault,omitzero"`

	Anthropic Anthropic `json:"anthropic,omitzero"`
	OpenAI    OpenAI    `json:"openai,omitzero"`
	Snowflake Snowflake `json:"snowflake,omitzero"`
}

// Parse reads a trust file. Unknown fields are errors.
func Parse(file []byte) (Trust, error) {
	var trust Trust
	if err := yaml.UnmarshalStrict(file, &trust); err != nil {
		return Trust{}, fmt.Errorf("parse the trust file: %w", err)
	}
	return trust, nil
}

// AWS is the configuration of AWS.
type AWS struct {
	OpenIDConnectProviders []OpenIDConnectProvider `json:"openIDConnectProviders,omitempty"`
	Roles                  []Role                  `json:"roles,omitempty"`
}

// OpenIDConnectProvider is an IAM OIDC identity provider in the format of
// get-open-id-connect-provider.
type OpenIDConnectProvider struct {
	// ARN ends with the URL: arn:aws:iam::123456789012:oidc-provider/HOST/PATH.
	ARN string `json:"arn"`
	// URL is the issuer without https://.
	URL string `json:"url"`
	// ClientIDList lists the audiences.
	ClientIDList []string `json:"clientIDList"`
}

// Role is an IAM role in the format of get-role.
type Role struct {
	ARN string `json:"arn"`
	// MaxSessionDuration is in seconds. 0 means AWS's default of one hour.
	MaxSessionDuration int `json:"maxSessionDuration,omitempty"`
	// AssumeRolePolicyDocument is the trust policy.
	AssumeRolePolicyDocument Policy `json:"assumeRolePolicyDocument"`
}

// UnmarshalJSON decodes a role and adds its ARN to errors.
func (r *Role) UnmarshalJSON(data []byte) error {
	type plain Role // without this method
	var role plain
	if err := strict(data, &role); err != nil {
		// Add the ARN to the error if it can be read.
		var named struct {
			ARN string `json:"arn"`
		}
		_ = json.Unmarshal(data, &named)
		return fmt.Errorf("role %q: %w", named.ARN, err)
	}
	*r = Role(role)
	return nil
}

// Policy is a role's trust policy in the IAM policy language.
type Policy struct {
	Version   string
	ID        string `json:"Id,omitempty"`
	Statement []Statement
}

// UnmarshalJSON decodes a policy and adds the index of the statement to errors.
func (p *Policy) UnmarshalJSON(data []byte) error {
	var policy struct {
		Version   string
		ID        string `json:"Id"`
		Statement []json.RawMessage
	}
	if err := strict(data, &policy); err != nil {
		return fmt.Errorf("trust policy: %w", err)
	}
	*p = Policy{Version: policy.Version, ID: policy.ID}
	for n, raw := range policy.Statement {
		var statement Statement
		if err := strict(raw, &statement); err != nil {
			return fmt.Errorf("trust policy: statement %d: %w", n, err)
		}
		p.Statement = append(p.Statement, statement)
	}
	return nil
}

// Statement is a statement of a policy.
type Statement struct {
	Sid string `json:",omitempty"`
	// Effect is Allow or Deny.
	Effect    string
	Principal Principal
	Action    Strings
	// Condition maps operators to keys to values.
	Condition map[string]map[string]Strings `json:",omitempty"`
}

// Principal identifies the principals of a statement.
type Principal struct {
	// Federated lists ARNs of identity providers.
	Federated Strings `json:",omitempty"`
	// AWS lists ARNs of roles.
	AWS Strings `json:",omitempty"`
}

// Strings is a string or a list of strings.
type Strings []string

// UnmarshalJSON accepts both forms.
func (s *Strings) UnmarshalJSON(data []byte) error {
	var one string
	if err := json.Unmarshal(data, &one); err == nil {
		*s = Strings{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return errors.New("want a string or a list of strings")
	}
	*s = list
	return nil
}

// Entra is the configuration of Microsoft Entra ID.
type Entra struct {
	Tenants []Tenant `json:"tenants,omitempty"`
}

// Tenant is a directory.
type Tenant struct {
	TenantID     string        `json:"tenantId"`
	Applications []Application `json:"applications,omitempty"`
}

// Application is an app registration in the format of Microsoft Graph.
type Application struct {
	// AppID is the client ID.
	AppID                        string                        `json:"appId"`
	DisplayName                  string                        `json:"displayName,omitempty"`
	FederatedIdentityCredentials []FederatedIdentityCredential `json:"federatedIdentityCredentials,omitempty"`
	PasswordCredentials          []PasswordCredential          `json:"passwordCredentials,omitempty"`
}

// FederatedIdentityCredential identifies tokens that an application trusts.
type FederatedIdentityCredential struct {
	Name    string `json:"name"`
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	// Audiences contains exactly one audience.
	Audiences []string `json:"audiences"`
}

// PasswordCredential is a client secret.
type PasswordCredential struct {
	SecretText string `json:"secretText"`
}

// Google is the configuration of Google Cloud.
type Google struct {
	WorkloadIdentityPoolProviders []WorkloadIdentityPoolProvider `json:"workloadIdentityPoolProviders,omitempty"`
	ServiceAccounts               []ServiceAccount               `json:"serviceAccounts,omitempty"`
}

// WorkloadIdentityPoolProvider is a provider in the format of the IAM API.
type WorkloadIdentityPoolProvider struct {
	// Name is projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER.
	Name string `json:"name"`
	OIDC OIDC   `json:"oidc"`
	// AttributeMapping maps attributes to expressions.
	AttributeMapping map[string]string `json:"attributeMapping"`
	// AttributeCondition is not supported.
	AttributeCondition string `json:"attributeCondition,omitempty"`
}

// OIDC is the identity provider of a WorkloadIdentityPoolProvider.
type OIDC struct {
	IssuerURI string `json:"issuerUri"`
	// JWKSJSON contains uploaded keys. Without them, the keys of the issuer are used.
	JWKSJSON string `json:"jwksJson,omitempty"`
	// AllowedAudiences defaults to the provider's full name, with and without
	// https:.
	AllowedAudiences []string `json:"allowedAudiences,omitempty"`
}

// ServiceAccount is a Google service account with its IAM policy.
type ServiceAccount struct {
	Email  string    `json:"email"`
	Policy IAMPolicy `json:"policy,omitzero"`
}

// IAMPolicy is an allow policy.
type IAMPolicy struct {
	Bindings []Binding `json:"bindings,omitempty"`
}

// Binding grants a role to members.
type Binding struct {
	Role    string   `json:"role"`
	Members []string `json:"members"`
}

// strict decodes JSON and rejects unknown fields. An UnmarshalJSON method does
// not inherit this setting from the outer decoder.
func strict(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
