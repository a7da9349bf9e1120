# Once per cluster:
data "azurerm_resource_group" "identities" {
  name = "workload-identities"
}

# Once per ServiceAccount:
resource "azurerm_user_assigned_identity" "shop_cart" {
  name                = "shop-cart"
  resource_group_name = data.azurerm_resource_group.identities.name
  location            = data.azurerm_resource_group.identities.location
}

resource "azurerm_federated_identity_credential" "shop_cart" {
  name                      = "shop-cart"
  user_assigned_identity_id = azurerm_user_assigned_identity.shop_cart.id
  issuer                    = "https://issuer.example.com/production"
  subject                   = "system:serviceaccount:shop:cart"
  audience                  = ["api://AzureADTokenExchange"]
}
