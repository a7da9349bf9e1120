# Once per cluster:
resource "google_iam_workload_identity_pool" "production" {
  workload_identity_pool_id = "production"
}

resource "google_iam_workload_identity_pool_provider" "kubernetes" {
  workload_identity_pool_id          = google_iam_workload_identity_pool.production.workload_identity_pool_id
  workload_identity_pool_provider_id = "kubernetes"
  attribute_mapping = {
    "google.subject" = "assertion.sub"
  }
  oidc {
    issuer_uri = "https://issuer.example.com/production"
    jwks_json = "{\"keys\":[{\"use\":\"sig\",\"kty\":\"RSA\",\"kid\":\"key-1\",\"alg\":\"RS256\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}"
  }
}

# Once per ServiceAccount. Give the roles that it needs to this principal:
locals {
  shop_cart_principal = "principal://iam.googleapis.com/${google_iam_workload_identity_pool.production.name}/subject/system:serviceaccount:shop:cart"
}
