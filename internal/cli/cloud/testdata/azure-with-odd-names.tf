# Once per cluster:
data "azurerm_resource_group" "identities" {
  name = "workload-identities"
}

# Once per ServiceAccount:
resource "azurerm_user_assigned_identity" "_1_shop_cart_v2" {
  name                = "1-shop-cart-v2"
  resource_group_name = data.azurerm_resource_group.identities.name
  location            = data.azurerm_resource_group.identities.location
}

resource "azurerm_federated_identity_credential" "_1_shop_cart_v2" {
  name                      = "1-shop-cart-v2"
  user_assigned_identity_id = azurerm_user_assigned_identity._1_shop_cart_v2.id
  issuer                    = "https://issuer.example.com/production"
  subject                   = "system:serviceaccount:1-shop:cart.v2"
  audience                  = ["api://AzureADTokenExchange"]
}
