// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"strings"

	"github.com/lanyard-dev/lanyard/internal/token"
)

// cause is why a cloud denies a token. The table of docs/troubleshooting.md has the same
// causes, and more that only a program in a pod meets.
type cause struct {
	provider, code string
	message        string // is in the cloud's message
	text           string
	// repair is the name of a template, and terraform reports whether lanyard trust writes
	// the repair as Terraform, too.
	repair    string
	terraform bool
}

// Causes of several errors.
const (
	keysCause     = "the published keys of the issuer lack the key of this token, or the cloud cannot read them."
	azureIssuer   = "no federated credential of the identity has this issuer, to the last character and slash."
	azureSubject  = "no federated credential of the identity has this namespace and ServiceAccount."
	azureMatching = "no federated credential of the identity has this issuer, subject and audience. A new credential takes some minutes."
)

// causes are the known causes. The first one that matches is the cause.
var causes = []cause{
	{"aws", "InvalidIdentityToken", "No OpenIDConnect provider", "the AWS account of the role has no IAM OIDC provider for the issuer.", "provider", true},
	{"aws", "InvalidIdentityToken", "Incorrect token audience", "the audience of the token is not a client ID of the IAM OIDC provider.", "audience", true},
	{"aws", "InvalidIdentityToken", "verification key", keysCause, "issuer", false},
	{"aws", "IDPCommunicationError", "", "AWS did not reach the issuer.", "issuer", false},
	{"aws", "AccessDenied", "AssumeRoleWithWebIdentity", "the role does not exist, or its trust policy names another issuer, subject or audience.", "role", true},
	{"aws", "RegionDisabledException", "", "the AWS account has STS switched off in the region.", "region", false},
	{"aws", "ExpiredTokenException", "", "the clock of the control plane differs from the cloud's clock.", "", false},
	{"azure", "AADSTS700211", "", azureIssuer, "credential", true},
	{"azure", "AADSTS700213", "", azureSubject, "credential", true},
	{"azure", "AADSTS7002138", "", azureSubject + " One has it with other capital letters.", "credential", true},
	{"azure", "AADSTS700212", "", "the federated credential has another audience than the token.", "audience", true},
	{"azure", "AADSTS70025", "", "the identity has no federated credential.", "credential", true},
	{"azure", "AADSTS70021", "", azureMatching, "credential", true},
	{"azure", "AADSTS700016", "", "the tenant has no application or managed identity with the client ID.", "client", false},
	{"azure", "AADSTS90002", "", "the tenant does not exist in this cloud of Azure.", "tenant", false},
	{"azure", "AADSTS7000272", "", keysCause, "issuer", false},
	{"azure", "AADSTS90061", "", "Entra did not reach the issuer.", "issuer", false},
	{"azure", "AADSTS50166", "", "Entra did not reach the issuer.", "issuer", false},
	{"azure", "AADSTS501661", "", "Entra did not reach the issuer.", "issuer", false},
	{"azure", "AADSTS5002738", "", "the API server signs with an elliptic key. Entra needs an RSA key for --service-account-signing-key-file.", "", false},
	{"azure", "AADSTS700024", "", "the clock of the control plane differs from the cloud's clock.", "", false},
	{"gcp", "invalid_grant", "issuer in ID Token", "the provider of the pool has another issuer.", "issuer-uri", true},
	{"gcp", "invalid_grant", "audience in ID Token", "the provider of the pool does not allow the audience of the token.", "audience", true},
	{"gcp", "invalid_grant", "credential's issuer", keysCause, "keys", false},
	{"gcp", "invalid_grant", "stale to sign-in", "the clock of the control plane differs from the cloud's clock.", "", false},
	{"gcp", "invalid_grant", "google.subject", "namespace and ServiceAccount have more than 104 characters together. Use shorter names.", "", false},
	{"gcp", "invalid_target", "", "the pool or the provider does not exist, or is deleted or disabled.", "provider", true},
	{"gcp", "unauthorized_client", "", "the attribute condition of the provider excludes the ServiceAccount. This shows the condition.", "condition", false},
	{"gcp", "PERMISSION_DENIED", "getAccessToken", "the Google service account does not exist, or the ServiceAccount may not impersonate it.", "member", true},
	{"gcp", "PERMISSION_DENIED", "has not been used in project", "the API is disabled in the project of the Google service account.", "service", false},
}

// explain adds the cause and the repair of a denial to the Answer. namespace and name are
// the ServiceAccount's, and prefix starts the keys of Lanyard's annotations.
func (a *Answer) explain(r *Request, namespace, name, prefix string) {
	for i := range causes {
		c := &causes[i]
		if a.Granted || c.provider != r.Provider.Name || c.code != a.Code || !strings.Contains(a.Message, c.message) {
			continue
		}
		a.Cause = c.text
		trust, err := trustOf(r, namespace, name, prefix)
		if err != nil || c.repair == "" {
			return // the cloud can never accept this token: the cause is all
		}
		a.Repair = trust.Text("repair", c.repair)
		if c.terraform && r.Profile == "" {
			a.Repair += "# As Terraform: lanyard trust " + c.provider + " " + Quote(name) + " --namespace " + Quote(namespace) + " --output terraform\n"
		}
		return
	}
}

// trustOf returns the trust configuration with which the cloud would accept the token.
func trustOf(r *Request, namespace, name, prefix string) (*Trust, error) {
	claims, err := token.Parse(r.Token)
	if err != nil {
		return nil, err
	}
	t := Token{Issuer: claims.Issuer, Namespace: namespace, ServiceAccount: name, Audience: r.Provider.Token.Audience, Prefix: prefix}
	e := exchange{Request: r}
	switch r.Provider.Name {
	case "aws":
		return NewAWS(t, e.variable("AWS_ROLE_ARN"))
	case "azure":
		return NewAzure(t, AzureOptions{ClientID: e.variable("AZURE_CLIENT_ID")})
	}
	file, err := r.credentialFile()
	if err != nil {
		return nil, err
	}
	return NewGCP(t, GCPOptions{Provider: strings.TrimPrefix(file.Audience, "//iam.googleapis.com/"), Email: impersonated(file.ImpersonationURL)})
}
