// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// azure is Microsoft Entra Workload ID.
func azure() *annotations.Provider {
	return &annotations.Provider{
		Name: "azure",
		Parameters: []annotations.Parameter{
			{
				Name: "client-id", Identity: true, Required: true, MaxBytes: 36,
				Grammar: lowerGUIDs("must be a client ID (GUID), such as 00000000-0000-0000-0000-000000000000", guid),
			},
			{
				// The GUID or a domain of a tenant. Entra issues no token for words such as
				// common, which stand for any tenant.
				Name: "tenant-id", Required: true, MaxBytes: 253,
				Grammar: lowerGUIDs("must be a tenant ID (GUID) or a domain of the tenant such as contoso.onmicrosoft.com; common, organizations, consumers and adfs do not name a tenant", guid, azureDomain),
				Flag:    "azure-default-tenant-id", Usage: "Azure tenant ID or domain of ServiceAccounts without the annotation azure-tenant-id.",
			},
			{
				Name: "authority-host", Required: true, ClusterOnly: true, MaxBytes: 2048, Parse: parseAzureAuthorityHost,
				Flag: "azure-authority-host", Usage: "URL of the Microsoft Entra authority. Sovereign clouds use other URLs.",
				Default: "https://login.microsoftonline.com/",
			},
			annotations.TokenPath(),
		},
		PrincipalParameters: []string{"client-id"},
		DefaultAudience:     "api://AzureADTokenExchange",
		MaxAudienceBytes:    600, // of a federated identity credential
		// SDKs cache an assertion for up to ten minutes, and the kubelet renews a token when
		// a fifth of its lifetime is left. With a shorter lifetime, SDKs could send an
		// expired token.
		MinExpirationSeconds: 3600,
		TokenPath:            "azure/token",
		CopyVolume:           "azure-identity-token", // of azure-workload-identity before 1.6
		TokenAlone:           true,
		Variables: []annotations.Variable{
			{Name: "AZURE_CLIENT_ID", Value: "{client-id}", Needed: true},
			{Name: "AZURE_TENANT_ID", Value: "{tenant-id}", Needed: true},
			{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: "{token-file}", Credential: true},
			// Without it, DefaultAzureCredential of Python skips workload identity.
			{Name: "AZURE_AUTHORITY_HOST", Value: "{authority-host}", Needed: true},
		},
		// EnvironmentCredential comes before WorkloadIdentityCredential in every
		// DefaultAzureCredential.
		// AZURE_TOKEN_CREDENTIALS limits DefaultAzureCredential to some credentials. Two of its
		// values keep workload identity. Go accepts only one spelling of "prod", and no empty
		// value. Source: azidentity, default_azure_credential.go.
		Shadows: []annotations.Shadow{
			{Name: "AZURE_CLIENT_SECRET"}, {Name: "AZURE_CLIENT_CERTIFICATE_PATH"}, {Name: "AZURE_USERNAME"}, {Name: "AZURE_PASSWORD"},
			{Name: "AZURE_TOKEN_CREDENTIALS", Unless: []string{"prod", "WorkloadIdentityCredential", "workloadidentitycredential"}},
		},
	}
}

var (
	guid        = regexp.MustCompile(texts.GUIDPattern)
	azureDomain = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?(\.[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?)+$`)
)

// lowerGUIDs returns the grammar of the values that match one of the patterns.
func lowerGUIDs(want string, anyOf ...*regexp.Regexp) annotations.Grammar {
	return annotations.Grammar{LowerGUIDs: true, Checks: []annotations.Check{{AnyOf: anyOf, Want: want}}}
}

// parseAzureAuthorityHost accepts an https URL and returns it with the trailing
// slash that Microsoft's documentation shows.
func parseAzureAuthorityHost(value string) (string, error) {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(value, "?#") || !texts.IsVisible(value) {
		return "", errors.New("must be an https URL without user, query and fragment, such as https://login.microsoftonline.com/")
	}
	return strings.TrimRight(value, "/") + "/", nil
}
