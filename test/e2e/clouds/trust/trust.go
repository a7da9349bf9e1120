// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trust is whom the emulated clouds trust: a file with the parts of
// each cloud's configuration in the form that the cloud itself shows them in.
// What the parts mean is the clouds' business.
package trust

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Trust is the whole file.
type Trust struct {
	AWS    AWS    `json:"aws,omitzero"`
	Entra  Entra  `json:"entra,omitzero"`
	Google Google `json:"google,omitzero"`
}

// Parse reads a trust file. It refuses what it does not know.
func Parse(file []byte) (Trust, error) {
	var trust Trust
	if err := yaml.UnmarshalStrict(file, &trust); err != nil {
		return Trust{}, fmt.Errorf("trust file: %w", err)
	}
	return trust, nil
}

// AWS is the part of Amazon Web Services.
type AWS struct {
	OpenIDConnectProviders []OpenIDConnectProvider `json:"openIDConnectProviders,omitempty"`
	Roles                  []Role                  `json:"roles,omitempty"`
}

// OpenIDConnectProvider is an IAM OIDC identity provider, as
// get-open-id-connect-provider shows one.
type OpenIDConnectProvider struct {
	// ARN ends in the URL, as in arn:aws:iam::123456789012:oidc-provider/HOST/PATH.
	ARN string `json:"arn"`
	// URL is the issuer without https://.
	URL string `json:"url"`
	// ClientIDList are the audiences.
	ClientIDList []string `json:"clientIDList"`
}

// Role is an IAM role, as get-role shows one.
type Role struct {
	ARN string `json:"arn"`
	// MaxSessionDuration is in seconds. 0 means AWS's default, one hour.
	MaxSessionDuration int `json:"maxSessionDuration,omitempty"`
	// AssumeRolePolicyDocument is the trust policy.
	AssumeRolePolicyDocument Policy `json:"assumeRolePolicyDocument"`
}

// UnmarshalJSON names the role in its errors.
func (r *Role) UnmarshalJSON(data []byte) error {
	type plain Role // without this method
	var role plain
	if err := strict(data, &role); err != nil {
		// Where it is readable at all, the error names it.
		var named struct {
			ARN string `json:"arn"`
		}
		_ = json.Unmarshal(data, &named)
		return fmt.Errorf("role %q: %w", named.ARN, err)
	}
	*r = Role(role)
	return nil
}

// Policy is a role's trust policy, in the IAM policy language.
type Policy struct {
	Version   string
	ID        string `json:"Id,omitempty"`
	Statement []Statement
}

// UnmarshalJSON names the statement in its errors.
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

// Statement allows or denies.
type Statement struct {
	Sid string `json:",omitempty"`
	// Effect is Allow or Deny.
	Effect    string
	Principal Principal
	Action    Strings
	// Condition has values by key by operator.
	Condition map[string]map[string]Strings `json:",omitempty"`
}

// Principal is whom a statement is about.
type Principal struct {
	// Federated are ARNs of identity providers.
	Federated Strings
}

// Strings is a string or a list of strings.
type Strings []string

// UnmarshalJSON reads either form.
func (s *Strings) UnmarshalJSON(data []byte) error {
	var one string
	if err := json.Unmarshal(data, &one); err == nil {
		*s = Strings{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return errors.New("got neither a string nor a list of strings")
	}
	*s = list
	return nil
}

// Entra is the part of Microsoft Entra ID.
type Entra struct {
	Tenants []Tenant `json:"tenants,omitempty"`
}

// Tenant is a directory.
type Tenant struct {
	TenantID     string        `json:"tenantId"`
	Applications []Application `json:"applications,omitempty"`
}

// Application is an app registration, as Microsoft Graph shows one.
type Application struct {
	// AppID is the client id.
	AppID                        string                        `json:"appId"`
	DisplayName                  string                        `json:"displayName,omitempty"`
	FederatedIdentityCredentials []FederatedIdentityCredential `json:"federatedIdentityCredentials,omitempty"`
	PasswordCredentials          []PasswordCredential          `json:"passwordCredentials,omitempty"`
}

// FederatedIdentityCredential is whose tokens stand for an application.
type FederatedIdentityCredential struct {
	Name    string `json:"name"`
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	// Audiences holds exactly one.
	Audiences []string `json:"audiences"`
}

// PasswordCredential is a client secret.
type PasswordCredential struct {
	SecretText string `json:"secretText"`
}

// Google is the part of Google Cloud.
type Google struct {
	WorkloadIdentityPoolProviders []WorkloadIdentityPoolProvider `json:"workloadIdentityPoolProviders,omitempty"`
	ServiceAccounts               []ServiceAccount               `json:"serviceAccounts,omitempty"`
}

// WorkloadIdentityPoolProvider is a provider, as the IAM API shows one.
type WorkloadIdentityPoolProvider struct {
	// Name is projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER.
	Name string `json:"name"`
	OIDC OIDC   `json:"oidc"`
	// AttributeMapping has expressions by attribute.
	AttributeMapping map[string]string `json:"attributeMapping"`
	// AttributeCondition is not supported.
	AttributeCondition string `json:"attributeCondition,omitempty"`
}

// OIDC is a provider's identity provider.
type OIDC struct {
	IssuerURI string `json:"issuerUri"`
	// AllowedAudiences empty means the provider's full name, with or without
	// https:.
	AllowedAudiences []string `json:"allowedAudiences,omitempty"`
}

// ServiceAccount is a Google service account and its IAM policy.
type ServiceAccount struct {
	Email  string    `json:"email"`
	Policy IAMPolicy `json:"policy,omitzero"`
}

// IAMPolicy is an allow policy.
type IAMPolicy struct {
	Bindings []Binding `json:"bindings,omitempty"`
}

// Binding gives a role to members.
type Binding struct {
	Role    string   `json:"role"`
	Members []string `json:"members"`
}

// strict decodes JSON and refuses unknown fields, as the decoder around it does:
// a method of a type does not get to know how that is set.
func strict(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
