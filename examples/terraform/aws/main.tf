# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The commands of docs/clouds/aws.md as Terraform, for the providers hashicorp/aws 6 and
# hashicorp/kubernetes 2.

# Once per cluster.

variable "issuer" {
  description = "The cluster's issuer, such as https://issuer.example.com/production."
  type        = string
}

resource "aws_iam_openid_connect_provider" "cluster" {
  url            = var.issuer
  client_id_list = ["sts.amazonaws.com"]
}

# Once per ServiceAccount.

locals {
  issuer_name = trimprefix(var.issuer, "https://")
}

resource "aws_iam_role" "shop_cart" {
  name = "shop-cart"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Federated = aws_iam_openid_connect_provider.cluster.arn }
      Action    = "sts:AssumeRoleWithWebIdentity"
      Condition = {
        StringEquals = {
          "${local.issuer_name}:aud" = "sts.amazonaws.com"
          "${local.issuer_name}:sub" = "system:serviceaccount:shop:cart"
        }
      }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "shop_cart" {
  role       = aws_iam_role.shop_cart.name
  policy_arn = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
}

resource "kubernetes_annotations" "shop_cart" {
  api_version = "v1"
  kind        = "ServiceAccount"
  metadata {
    namespace = "shop"
    name      = "cart"
  }
  annotations = {
    "lanyard.dev/aws-role-arn" = aws_iam_role.shop_cart.arn
    "lanyard.dev/aws-region"   = "eu-central-1"
  }
}
