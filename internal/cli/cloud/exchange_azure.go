// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// azureScopes are the scopes of Azure Resource Manager by the host of the
// authority. Other hosts have the first.
var azureScopes = map[string]string{
	"":                                 "https://management.azure.com/.default",
	"login.microsoftonline.us":         "https://management.core.usgovcloudapi.net/.default",
	"login.chinacloudapi.cn":           "https://management.core.chinacloudapi.cn/.default",
	"login.partner.microsoftonline.cn": "https://management.core.chinacloudapi.cn/.default",
}

// azure uses the client credentials grant with the token as an assertion.
func (e *exchange) azure(ctx context.Context) (*Answer, error) {
	authority, err := url.Parse(e.variable("AZURE_AUTHORITY_HOST"))
	if err != nil {
		return nil, fmt.Errorf("AZURE_AUTHORITY_HOST: %w", err)
	}
	client, tenant := e.variable("AZURE_CLIENT_ID"), e.variable("AZURE_TENANT_ID")
	scope := e.Scope
	if scope == "" {
		scope = azureScopes[authority.Host]
	}
	if scope == "" {
		scope = azureScopes[""]
	}
	asked := time.Now()
	answer, body, err := e.post(ctx, ClientCredentials, authority.JoinPath(tenant, "oauth2/v2.0/token").String(), url.Values{
		"grant_type":            {ClientCredentials},
		"client_id":             {client},
		"scope":                 {scope},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion":      {e.Token},
	})
	if err != nil {
		return nil, err
	}
	var response struct {
		ExpiresIn   int64  `json:"expires_in"`
		Credential  string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
		Codes       []int  `json:"error_codes"`
	}
	err = json.Unmarshal(body, &response)
	switch {
	case err == nil && answer.ok() && response.Credential != "":
		return answer.granted(client+" in the tenant "+tenant, asked.Add(time.Duration(response.ExpiresIn)*time.Second)), nil
	case err != nil || answer.ok() || response.Error == "":
		return nil, answer.unexpected()
	}
	code := response.Error
	if len(response.Codes) > 0 {
		code = fmt.Sprintf("AADSTS%d", response.Codes[0])
	}
	// The description ends with IDs for Microsoft's support, and has the code in front.
	message, _, _ := strings.Cut(response.Description, " Trace ID: ")
	return answer.denied(code, strings.TrimPrefix(message, code+": "), e.Token), nil
}
