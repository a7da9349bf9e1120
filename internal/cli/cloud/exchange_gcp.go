// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/internal/token"
)

// cloudPlatform is the scope of all APIs of Google Cloud.
const cloudPlatform = "https://www.googleapis.com/auth/cloud-platform"

// credentialFile has fields of a credential configuration file (AIP-4117).
type credentialFile struct {
	Audience         string `json:"audience"`
	SubjectTokenType string `json:"subject_token_type"`
	TokenURL         string `json:"token_url"`
	ImpersonationURL string `json:"service_account_impersonation_url"`
}

// gcp exchanges the token for a federated token. If the file names a service
// account, gcp exchanges the federated token for the service account's token.
func (e *exchange) gcp(ctx context.Context) (*Answer, error) {
	var file credentialFile
	if err := json.Unmarshal([]byte(e.Provider.File.Content), &file); err != nil {
		return nil, fmt.Errorf("credential file: %w", err)
	}
	asked := time.Now()
	answer, body, err := e.post(ctx, TokenExchange, file.TokenURL, url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"audience":             {file.Audience},
		"scope":                {cloudPlatform},
		"subject_token":        {e.Token},
		"subject_token_type":   {file.SubjectTokenType},
	})
	if err != nil {
		return nil, err
	}
	var response struct {
		Credential  string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	err = json.Unmarshal(body, &response)
	switch {
	case err == nil && !answer.ok() && response.Error != "":
		return answer.denied(response.Error, response.Description, e.Token), nil
	case err != nil || !answer.ok() || response.Credential == "":
		return nil, answer.unexpected()
	case file.ImpersonationURL != "":
		return e.impersonate(ctx, file.ImpersonationURL, response.Credential)
	}
	return answer.granted(e.principal(file.Audience), asked.Add(time.Duration(response.ExpiresIn)*time.Second)), nil
}

// principal returns the name of the token's subject in Google Cloud.
func (e *exchange) principal(audience string) string {
	pool, _, _ := strings.Cut(audience, "/providers/")
	claims, err := token.Parse(e.Token)
	if err != nil {
		return "" // Google has accepted it: it does not matter to the reader
	}
	return "principal:" + pool + "/subject/" + claims.Subject
}

// impersonate gets a credential of a service account with a federated one.
func (e *exchange) impersonate(ctx context.Context, target, federated string) (*Answer, error) {
	const request = `{"scope":["` + cloudPlatform + `"],"lifetime":"3600s"}`
	answer, body, err := e.send(ctx, GenerateAccessToken, target, "application/json", federated, request)
	if err != nil {
		return nil, err
	}
	var response struct {
		Credential string    `json:"accessToken"`
		Expires    time.Time `json:"expireTime"`
		Error      struct {
			Code    int    `json:"code"`
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"error"`
	}
	err = json.Unmarshal(body, &response)
	switch {
	case err == nil && answer.ok() && response.Credential != "":
		return answer.granted(impersonated(target), response.Expires), nil
	case err != nil || answer.ok() || response.Error.Message == "":
		return nil, answer.unexpected()
	}
	code := response.Error.Status
	if code == "" {
		code = strconv.Itoa(response.Error.Code)
	}
	return answer.denied(code, response.Error.Message, e.Token, federated), nil
}

// impersonated returns the e-mail of the service account in the URL.
func impersonated(target string) string {
	_, email, _ := strings.Cut(target, "/serviceAccounts/")
	return strings.TrimSuffix(email, ":"+GenerateAccessToken)
}
