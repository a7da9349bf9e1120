// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"encoding/json"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// gcp is Workload Identity Federation, direct or through a service account.
func (b *builder) gcp(identity *annotations.GCP) Provider {
	const credentials = "gcp/credentials.json"
	p := Provider{
		Name:           GCP,
		Token:          b.token(identity.Audience, "gcp/token"),
		CredentialFile: File{Path: credentials, Content: b.externalAccount(identity)},
		Credentials: []Variable{
			variable("GOOGLE_APPLICATION_CREDENTIALS", b.file(credentials)),
			// gcloud and bq do not read the variable above.
			variable("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", b.file(credentials)),
		},
	}
	if identity.Project != "" {
		// The file names no project; Python and JavaScript would ask the
		// resource manager for it, and the metadata server after that.
		p.Settings = [][]Variable{{
			variable("GOOGLE_CLOUD_PROJECT", identity.Project),
			variable("CLOUDSDK_CORE_PROJECT", identity.Project),
		}}
	}
	return p
}

// externalAccount is a credential configuration file (AIP-4117). Its audience
// is the provider's name and not the token's audience, which may be another.
func (b *builder) externalAccount(identity *annotations.GCP) string {
	type format struct {
		Type string `json:"type"`
	}
	type source struct {
		File   string `json:"file"`
		Format format `json:"format"`
	}
	file := struct {
		Type             string `json:"type"`
		Audience         string `json:"audience"`
		SubjectTokenType string `json:"subject_token_type"`
		TokenURL         string `json:"token_url"`
		CredentialSource source `json:"credential_source"`
		ImpersonationURL string `json:"service_account_impersonation_url,omitempty"`
	}{
		Type:             "external_account",
		Audience:         "//iam.googleapis.com/" + identity.WorkloadIdentityProvider,
		SubjectTokenType: "urn:ietf:params:oauth:token-type:jwt",
		TokenURL:         "https://sts.googleapis.com/v1/token",
		CredentialSource: source{File: b.file("gcp/token"), Format: format{Type: "text"}},
	}
	if identity.ServiceAccount != "" {
		file.ImpersonationURL = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" +
			identity.ServiceAccount + ":generateAccessToken"
	}
	text, err := json.Marshal(file)
	if err != nil {
		// Strings alone cannot fail to be encoded.
		panic(err)
	}
	return string(text)
}
