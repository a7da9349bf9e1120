# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The commands of docs/clouds/azure.md as Terraform, for the providers hashicorp/azurerm 5
# and hashicorp/kubernetes 2. With azurerm 4, a federated credential has parent_id and
# resource_group_name instead of user_assigned_identity_id.

# Once per cluster.

variable "issuer" {
  description = "The cluster's issuer, with the slash at its end if it has one."
  type        = string
}

data "azurerm_client_config" "current" {}

resource "azurerm_resource_group" "identities" {
  name     = "workload-identities"
  location = "westeurope"
}

# Once per ServiceAccount.

resource "azurerm_user_assigned_identity" "shop_cart" {
  name                = "shop_cart"
  resource_group_name = azurerm_resource_group.identities.name
  location            = azurerm_resource_group.identities.location
}

resource "azurerm_federated_identity_credential" "shop_cart" {
  name                      = "shop_cart"
  user_assigned_identity_id = azurerm_user_assigned_identity.shop_cart.id
  issuer                    = var.issuer
  subject                   = "system:serviceaccount:shop:cart"
  audience                  = ["api://AzureADTokenExchange"]
}

resource "azurerm_role_assignment" "shop_cart" {
  scope                = azurerm_resource_group.identities.id
  role_definition_name = "Reader"
  principal_id         = azurerm_user_assigned_identity.shop_cart.principal_id
  principal_type       = "ServicePrincipal"
}

resource "kubernetes_annotations" "shop_cart" {
  api_version = "v1"
  kind        = "ServiceAccount"
  metadata {
    namespace = "shop"
    name      = "cart"
  }
  annotations = {
    "lanyard.dev/azure-client-id" = azurerm_user_assigned_identity.shop_cart.client_id
    "lanyard.dev/azure-tenant-id" = data.azurerm_client_config.current.tenant_id
  }
}
