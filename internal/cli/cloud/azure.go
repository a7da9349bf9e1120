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
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// maxCredentials is how many federated credentials an identity can have.
const maxCredentials = 20

// trustAzure returns the trust configuration of Microsoft Entra ID. Only a repair needs the
// client ID.
func trustAzure(token *Token) (Trust, error) {
	id := token.Values["client-id"]
	if id != "" && !texts.IsGUID(id) {
		return nil, fmt.Errorf("client ID %q: must be a GUID", id)
	}
	if n := len(token.All()); n > maxCredentials {
		return nil, fmt.Errorf("got %d ServiceAccounts; an identity of Azure has at most %d federated credentials, and each ServiceAccount needs one", n, maxCredentials)
	}
	needsID := slices.ContainsFunc(token.All(), func(t *Token) bool { return t.ClientIDKey != "" })
	return fill("azure", token, struct {
		*Token
		Identity, ClientID string
		NeedsClientID      bool
	}{token, cmp.Or(token.Identity, token.Name()), id, needsID})
}

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
		// The description ends with IDs for Microsoft's support, and has the code in front.
		message, _, _ := strings.Cut(response.Description, " Trace ID: ")
		response.Description = strings.TrimPrefix(message, response.Error+": ")
		return response.reply(id+" in the tenant "+tenant, asked), err
	})
}
