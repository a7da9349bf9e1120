// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
)

// Azure is the trust configuration of Microsoft Entra ID.
type Azure struct {
	// FederatedCredential belongs to the managed identity or the app registration.
	FederatedCredential FederatedCredential `json:"federatedCredential"`

	token                   Token
	identity, resourceGroup string
}

// FederatedCredential names the tokens that an identity trusts. It has the form of
// Microsoft Graph.
type FederatedCredential struct {
	Name    string `json:"name"`
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	// Audiences has one element.
	Audiences []string `json:"audiences"`
}

// NewAzure returns the trust configuration of Azure. identity is the name of a
// user-assigned managed identity; if empty, it is made of the names of the
// ServiceAccount. resourceGroup is the identity's. If it is empty, the shell and
// Terraform ask for it.
func NewAzure(token Token, identity, resourceGroup string) (*Azure, error) {
	if err := token.check(); err != nil {
		return nil, err
	}
	if identity == "" {
		identity = token.name()
	}
	return &Azure{
		FederatedCredential: FederatedCredential{
			Name: token.name(), Issuer: token.Issuer, Subject: token.Subject(), Audiences: []string{token.Audience},
		},
		token: token, identity: identity, resourceGroup: resourceGroup,
	}, nil
}

// Shell returns the commands of the Azure CLI. Azure has no object for a cluster.
func (a *Azure) Shell() Script {
	group := "GROUP=" + Quote(a.resourceGroup)
	if a.resourceGroup == "" {
		group = `: "${GROUP:?set it to the resource group of the managed identity}"`
	}
	return Script{ServiceAccount: fmt.Sprintf(`# Once per ServiceAccount:
%s
az identity create --resource-group "$GROUP" --name %[2]s
az identity federated-credential create --resource-group "$GROUP" --identity-name %[2]s \
  --name %[3]s \
  --issuer %[4]s --subject %[5]s --audiences %[6]s
`, group, Quote(a.identity), Quote(a.FederatedCredential.Name),
		Quote(a.token.Issuer), Quote(a.token.Subject()), Quote(a.token.Audience))}
}

// Terraform returns the resources of the provider hashicorp/azurerm from version 5.
func (a *Azure) Terraform() Script {
	group, variable := literal(a.resourceGroup), ""
	if a.resourceGroup == "" {
		group = "var.resource_group"
		variable = `variable "resource_group" {
  description = "The resource group of the managed identities."
  type        = string
}

`
	}
	return Script{
		Cluster: fmt.Sprintf(`# Once per cluster:
%sdata "azurerm_resource_group" "identities" {
  name = %s
}
`, variable, group),
		ServiceAccount: fmt.Sprintf(`# Once per ServiceAccount:
resource "azurerm_user_assigned_identity" %[1]q {
  name                = %[2]s
  resource_group_name = data.azurerm_resource_group.identities.name
  location            = data.azurerm_resource_group.identities.location
}

resource "azurerm_federated_identity_credential" %[1]q {
  name                      = %[3]s
  user_assigned_identity_id = azurerm_user_assigned_identity.%[1]s.id
  issuer                    = %[4]s
  subject                   = %[5]s
  audience                  = [%[6]s]
}
`, a.token.label(), literal(a.identity), literal(a.FederatedCredential.Name),
			literal(a.token.Issuer), literal(a.token.Subject()), literal(a.token.Audience)),
	}
}
