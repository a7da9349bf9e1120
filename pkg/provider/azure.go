// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import "github.com/lanyard-dev/lanyard/pkg/annotations"

// DefaultAzureAuthorityHost is the public cloud's.
const DefaultAzureAuthorityHost = "https://login.microsoftonline.com/"

// azure is Microsoft Entra Workload ID.
func (b *builder) azure(identity *annotations.Azure) Provider {
	return Provider{
		Name:  Azure,
		Token: b.token(identity.Audience, "azure/token"),
		Credentials: []Variable{
			variable("AZURE_CLIENT_ID", identity.ClientID),
			variable("AZURE_TENANT_ID", identity.TenantID),
			variable("AZURE_FEDERATED_TOKEN_FILE", b.file("azure/token")),
		},
		Settings: [][]Variable{
			// Python's DefaultAzureCredential leaves workload identity out
			// without it, so it is always there.
			{variable("AZURE_AUTHORITY_HOST", b.AzureAuthorityHost)},
		},
		// EnvironmentCredential comes before WorkloadIdentityCredential in
		// every DefaultAzureCredential.
		Shadowing: []string{
			"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_USERNAME", "AZURE_PASSWORD",
		},
	}
}
