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
	"strings"
	"time"
)

// resourceManager is the scope of Azure Resource Manager in the public cloud, and
// azureScopes are the scopes in other clouds, by the host of the authority.
const resourceManager = "https://management.azure.com/.default"

var azureScopes = map[string]string{
	"login.microsoftonline.us":         "https://management.core.usgovcloudapi.net/.default",
	"login.chinacloudapi.cn":           "https://management.core.chinacloudapi.cn/.default",
	"login.partner.microsoftonline.cn": "https://management.core.chinacloudapi.cn/.default",
}

// azure uses the client credentials grant with the token as an assertion.
func (r *Request) azure(ctx context.Context, client *http.Client) (*Answer, error) {
	authority, err := url.Parse(r.Variables["AZURE_AUTHORITY_HOST"])
	if err != nil {
		return nil, fmt.Errorf("AZURE_AUTHORITY_HOST: %w", err)
	}
	id, tenant, asked := r.Variables["AZURE_CLIENT_ID"], r.Variables["AZURE_TENANT_ID"], time.Now()
	return r.send(ctx, client, form("client_credentials", authority.JoinPath(tenant, "oauth2/v2.0/token").String(), url.Values{
		"grant_type":            {"client_credentials"},
		"client_id":             {id},
		"scope":                 {cmp.Or(r.Scope, azureScopes[authority.Host], resourceManager)},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion":      {r.Token},
	}), func(body []byte) (reply, error) {
		var response struct {
			oauthResponse
			Codes []int `json:"error_codes"`
		}
		err := json.Unmarshal(body, &response)
		if response.Error != "" && len(response.Codes) > 0 {
			response.Error = fmt.Sprintf("AADSTS%d", response.Codes[0])
		}
		// The description starts with the code, and ends with IDs for Microsoft's support.
		message, _, _ := strings.Cut(response.Description, " Trace ID: ")
		response.Description = strings.TrimPrefix(message, response.Error+": ")
		return response.reply(id+" in the tenant "+tenant, asked), err
	})
}
