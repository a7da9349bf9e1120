// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package exchange

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
)

// audiencePrefix precedes the name of a provider in a credential file.
const audiencePrefix = "//iam.googleapis.com/"

// Principal returns the name of a token's subject in Google Cloud. provider is the name of the
// workload identity provider.
func Principal(provider, subject string) string {
	pool, _, _ := strings.Cut(provider, "/providers/")
	return "principal:" + audiencePrefix + pool + "/subject/" + subject
}

// cloudPlatform is the scope of all APIs of Google Cloud.
const cloudPlatform = "https://www.googleapis.com/auth/cloud-platform"

// ExternalAccount contains fields of a credential file (AIP-4117).
type ExternalAccount struct {
	Audience         string `json:"audience"`
	SubjectTokenType string `json:"subject_token_type"`
	TokenURL         string `json:"token_url"`
	ImpersonationURL string `json:"service_account_impersonation_url"`
	// Source contains the path of the token.
	Source struct {
		File string `json:"file"`
	} `json:"credential_source"`
}

// CredentialFile reads the credential file of the pods.
func (r *Request) CredentialFile() (file ExternalAccount, err error) {
	if err := json.Unmarshal([]byte(r.File), &file); err != nil {
		return file, fmt.Errorf("credential file: %w", err)
	}
	return file, nil
}

// Impersonated returns the service account of an impersonation URL.
func Impersonated(target string) string {
	_, email, _ := strings.Cut(target, "/serviceAccounts/")
	return strings.TrimSuffix(email, ":generateAccessToken")
}

// gcp exchanges the token for a federated token. If the credential file (AIP-4117) names
// a service account, gcp exchanges the federated token for the service account's token.
func (r *Request) gcp(ctx context.Context, client *http.Client) (*Answer, error) {
	file, err := r.CredentialFile()
	if err != nil {
		return nil, err
	}
	identity := "" // if the token cannot be read: Google has accepted it
	if claims, err := ParseToken(r.Token); err == nil {
		identity = Principal(strings.TrimPrefix(file.Audience, audiencePrefix), claims.Subject)
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
		return reply{response.Credential != "", Impersonated(target), response.Expires, code, response.Error.Message}, err
	})
}
