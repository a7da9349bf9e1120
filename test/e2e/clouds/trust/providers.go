// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trust

// Alibaba is the configuration of Alibaba Cloud.
type Alibaba struct {
	OIDCProviders []AlibabaOIDCProvider `json:"oidcProviders,omitempty"`
	Roles         []AlibabaRole         `json:"roles,omitempty"`
}

// AlibabaOIDCProvider is an OIDC identity provider in RAM.
type AlibabaOIDCProvider struct {
	// ARN is acs:ram::ACCOUNT:oidc-provider/NAME.
	ARN       string `json:"arn"`
	IssuerURL string `json:"issuerURL"`
	// ClientIDs lists the audiences.
	ClientIDs []string `json:"clientIDs"`
}

// AlibabaRole is a RAM role.
type AlibabaRole struct {
	// ARN is acs:ram::ACCOUNT:role/NAME.
	ARN string `json:"arn"`
	// AssumeRolePolicyDocument is the trust policy. RAM's policy language has the form
	// of IAM's.
	AssumeRolePolicyDocument Policy `json:"assumeRolePolicyDocument"`
}

// IBM is the configuration of IBM Cloud.
type IBM struct {
	TrustedProfiles []TrustedProfile `json:"trustedProfiles,omitempty"`
}

// TrustedProfile is a profile with its links in the format of the IAM Identity API.
type TrustedProfile struct {
	// ID is Profile-UUID.
	ID    string        `json:"id"`
	Links []ProfileLink `json:"links,omitempty"`
}

// ProfileLink identifies a compute resource that may use a profile.
type ProfileLink struct {
	// CRType is IKS_SA or ROKS_SA, for ServiceAccounts.
	CRType string `json:"cr_type"`
	Link   Link   `json:"link"`
}

// Link identifies a ServiceAccount.
type Link struct {
	// CRN is the CRN of the cluster.
	CRN       string `json:"crn"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Vault is the configuration of Vault or OpenBao.
type Vault struct {
	AuthMethods []AuthMethod `json:"auth_methods,omitempty"`
}

// AuthMethod is a jwt auth method with its roles.
type AuthMethod struct {
	// Path is where it is mounted.
	Path        string      `json:"path"`
	BoundIssuer string      `json:"bound_issuer"`
	Roles       []VaultRole `json:"roles,omitempty"`
}

// VaultRole is a role of a jwt auth method.
type VaultRole struct {
	Name           string   `json:"name"`
	BoundAudiences []string `json:"bound_audiences"`
	BoundSubject   string   `json:"bound_subject"`
	TokenPolicies  []string `json:"token_policies,omitempty"`
}
