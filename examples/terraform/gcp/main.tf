# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The commands of docs/clouds/gcp.md as Terraform, for the providers hashicorp/google 7 and
# hashicorp/kubernetes 2.

# Once per cluster.

variable "issuer" {
  description = "The cluster's issuer."
  type        = string
}

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
    issuer_uri = var.issuer
    # If Google cannot read the issuer:
    # jwks_json = file("jwks.json")
  }
}

# Once per ServiceAccount, as a principal of the pool.

resource "google_storage_bucket_iam_member" "shop_cart" {
  bucket = "my-bucket"
  role   = "roles/storage.objectViewer"
  member = "principal://iam.googleapis.com/${google_iam_workload_identity_pool.production.name}/subject/system:serviceaccount:shop:cart"
}

resource "kubernetes_annotations" "shop_cart" {
  api_version = "v1"
  kind        = "ServiceAccount"
  metadata {
    namespace = "shop"
    name      = "cart"
  }
  annotations = {
    "lanyard.dev/gcp-workload-identity-provider" = google_iam_workload_identity_pool_provider.kubernetes.name
    "lanyard.dev/gcp-project"                    = "my-project"
  }
}

# To impersonate a service account, add these. Replace the annotation
# lanyard.dev/gcp-project with lanyard.dev/gcp-service-account.

resource "google_service_account" "shop_cart" {
  account_id = "shop-cart"
}

resource "google_service_account_iam_member" "shop_cart" {
  service_account_id = google_service_account.shop_cart.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principal://iam.googleapis.com/${google_iam_workload_identity_pool.production.name}/subject/system:serviceaccount:shop:cart"
}
