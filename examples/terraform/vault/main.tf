# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The commands of docs/clouds/vault.md as Terraform, for the providers hashicorp/vault 5 and
# hashicorp/kubernetes 2.

# Once per cluster. If Vault cannot read the issuer, set jwt_validation_pubkeys instead of
# oidc_discovery_url.

variable "issuer" {
  description = "The cluster's issuer."
  type        = string
}

resource "vault_jwt_auth_backend" "production" {
  path               = "production"
  oidc_discovery_url = var.issuer
  bound_issuer       = var.issuer
}

# Once per ServiceAccount.

resource "vault_policy" "shop_cart" {
  name   = "shop-cart"
  policy = <<-EOT
    path "secret/data/shop/cart" {
      capabilities = ["read"]
    }
  EOT
}

resource "vault_jwt_auth_backend_role" "shop_cart" {
  backend         = vault_jwt_auth_backend.production.path
  role_name       = "shop-cart"
  role_type       = "jwt"
  user_claim      = "sub"
  bound_audiences = ["vault"]
  bound_subject   = "system:serviceaccount:shop:cart"
  token_policies  = [vault_policy.shop_cart.name]
  token_ttl       = 1200
}

resource "kubernetes_annotations" "shop_cart" {
  api_version = "v1"
  kind        = "ServiceAccount"
  metadata {
    namespace = "shop"
    name      = "cart"
  }
  annotations = {
    "lanyard.dev/audience" = "vault"
  }
}
