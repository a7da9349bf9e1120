// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// maxCredentials is how many federated credentials an identity can have.
const maxCredentials = 20

// azureTag is the pattern of the tags of Azure
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
const azureTag = `^[^<>%&\\?/=[:cntrl:]]{1,512}=[^[:cntrl:]]{0,256}$`

// trustAzure returns the trust configuration of Microsoft Entra ID. Only a repair needs the
// client ID.
func trustAzure(token *Token) (Trust, error) {
	if err := token.check(); err != nil {
		return nil, err
	}
	id := token.Values["client-id"]
	switch {
	case id == anyGUID:
		id = "" // the ServiceAccount has none yet
	case id != "" && !texts.IsGUID(id):
		return nil, fmt.Errorf("client ID %q: must be a GUID", id)
	}
	if err := token.checkTags(azureTag); err != nil {
		return nil, err
	}
	if n := len(token.ServiceAccounts); n > maxCredentials {
		return nil, fmt.Errorf("got %d ServiceAccounts; an identity of Azure has at most %d federated credentials, and each ServiceAccount needs one", n, maxCredentials)
	}
	var credentials []credential
	for _, a := range token.ServiceAccounts {
		credentials = append(credentials, credential{a, a.ObjectName(), token.Issuer, a.Subject(), []string{token.Audience}})
	}
	needsID := slices.ContainsFunc(token.ServiceAccounts, func(a ServiceAccount) bool { return a.ClientIDKey != "" })
	return fill("azure", token, struct {
		*Token
		Identity, ClientID string
		NeedsClientID      bool
		Credentials        []credential
	}{token, cmp.Or(token.Identity, credentials[0].Name), id, needsID, credentials})
}

// credential is a federated credential.
type credential struct {
	ServiceAccount `json:"-"`
	Name           string   `json:"name"`
	Issuer         string   `json:"issuer"`
	Subject        string   `json:"subject"`
	Audiences      []string `json:"audiences"`
}
