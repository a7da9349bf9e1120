# Once per cluster:
resource "aws_iam_openid_connect_provider" "cluster" {
  url            = "https://issuer.example.com/production"
  client_id_list = ["$(odd)'%%{audience}"]
}

# Once per ServiceAccount:
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
          "issuer.example.com/production:aud" = "$(odd)'%%{audience}"
          "issuer.example.com/production:sub" = "system:serviceaccount:shop:cart"
        }
      }
    }]
  })
}
