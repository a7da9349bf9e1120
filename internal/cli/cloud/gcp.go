// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/token"
)

// maxGoogleSubject is the length of the longest subject in bytes.
const maxGoogleSubject = 127

// namespaceClaim is the namespace of a token's ServiceAccount, in Google's dialect of CEL. As the
// attribute "namespace", it lets a role name all ServiceAccounts of a namespace as a principalSet.
const namespaceClaim = "assertion['kubernetes.io']['namespace']"

// trustGCP returns the trust configuration of Google Cloud, with or without a service account to
// impersonate.
func trustGCP(token *Token) (Trust, error) {
	full, email := token.Values["workload-identity-provider"], token.Values["service-account"]
	number, pool, name, ok := provider.GCPProviderParts(full)
	if !ok {
		return nil, fmt.Errorf("workload identity provider %q is not of the form projects/NUMBER/locations/global/"+
			"workloadIdentityPools/POOL/providers/PROVIDER", full)
	}
	for _, subject := range token.Subjects() {
		if len(subject) > maxGoogleSubject {
			return nil, fmt.Errorf("subject %q has %d bytes; Google Cloud accepts at most %d", subject, len(subject), maxGoogleSubject)
		}
	}
	allowed := token.Audience
	if strings.TrimPrefix(allowed, "https:") == "//iam.googleapis.com/"+full {
		allowed = "" // the audience that Google expects
	}
	emailNumber, _, _ := strings.Cut(email, "-compute@") // of Compute Engine's service account
	return fill("gcp", token, struct {
		*Token
		Provider, Email, Number, PoolID, ProviderID, AllowedAudience, EmailProject, EmailNumber, NamespaceClaim string
	}{token, full, email, number, pool, name, allowed, provider.GCPProjectOf(email), emailNumber, namespaceClaim})
}

// Principal returns the name of the subject in Google Cloud.
func (t *Token) Principal() string {
	return principal("//iam.googleapis.com/"+t.Values["workload-identity-provider"], t.Subject())
}

// Principals returns the names of all subjects in Google Cloud.
func (t *Token) Principals() []string {
	var all []string
	for _, one := range t.All() {
		all = append(all, one.Principal())
	}
	return all
}

// principal returns the name of a token's subject in Google Cloud. audience is the name
// of the provider.
func principal(audience, subject string) string {
	pool, _, _ := strings.Cut(audience, "/providers/")
	return "principal:" + pool + "/subject/" + subject
}

// cloudPlatform is the scope of all APIs of Google Cloud.
const cloudPlatform = "https://www.googleapis.com/auth/cloud-platform"

// externalAccount has fields of a credential file (AIP-4117).
type externalAccount struct {
	Audience         string `json:"audience"`
	SubjectTokenType string `json:"subject_token_type"`
	TokenURL         string `json:"token_url"`
	ImpersonationURL string `json:"service_account_impersonation_url"`
}

// credentialFile reads the credential file of the pods.
func (r *Request) credentialFile() (file externalAccount, err error) {
	if err := json.Unmarshal([]byte(r.File), &file); err != nil {
		return file, fmt.Errorf("credential file: %w", err)
	}
	return file, nil
}

// impersonated returns the service account of an impersonation URL.
func impersonated(target string) string {
	_, email, _ := strings.Cut(target, "/serviceAccounts/")
	return strings.TrimSuffix(email, ":generateAccessToken")
}

// gcp exchanges the token for a federated token. If the credential file (AIP-4117) names
// a service account, gcp exchanges the federated token for the service account's token.
func (r *Request) gcp(ctx context.Context, client *http.Client) (*Answer, error) {
	file, err := r.credentialFile()
	if err != nil {
		return nil, err
	}
	identity := "" // if the token cannot be read: Google has accepted it
	if claims, err := token.Parse(r.Token); err == nil {
		identity = principal(file.Audience, claims.Subject)
	}
	asked := time.Now()
	var federated oauthResponse
	answer, err := r.send(ctx, client, form("token exchange", file.TokenURL, url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"audience":             {file.Audience},
		"scope":                {cloudPlatform},
		"subject_token":        {r.Token},
		"subject_token_type":   {file.SubjectTokenType},
	}), func(body []byte) (reply, error) {
		err := json.Unmarshal(body, &federated)
		return federated.reply(identity, asked), err
	})
	if err != nil || !answer.Granted || file.ImpersonationURL == "" {
		return answer, err
	}
	return r.impersonate(ctx, client, file.ImpersonationURL, federated.Credential)
}

// impersonate gets a credential of a service account with a federated one.
func (r *Request) impersonate(ctx context.Context, client *http.Client, target, federated string) (*Answer, error) {
	const request = `{"scope":["` + cloudPlatform + `"],"lifetime":"3600s"}`
	return r.send(ctx, client, &call{"generateAccessToken", target, "application/json", federated, request}, func(body []byte) (reply, error) {
		var response struct {
			Credential string    `json:"accessToken"`
			Expires    time.Time `json:"expireTime"`
			Error      struct {
				Code    int    `json:"code"`
				Status  string `json:"status"`
				Message string `json:"message"`
			} `json:"error"`
		}
		err := json.Unmarshal(body, &response)
		code := cmp.Or(response.Error.Status, strconv.Itoa(response.Error.Code))
		if response.Error.Message == "" {
			code = "" // not an error of this API
		}
		return reply{response.Credential != "", impersonated(target), response.Expires, code, response.Error.Message}, err
	})
}
