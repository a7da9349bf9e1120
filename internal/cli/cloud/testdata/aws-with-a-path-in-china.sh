# Once per cluster, in the AWS account 111122223333:
aws iam create-open-id-connect-provider --url https://issuer.example.com/production --client-id-list sts.amazonaws.com
# Once per ServiceAccount, in the AWS account 111122223333:
cat > trust.json <<'EOF'
{
  "Version": "2012-10-17",
  "Statement": [
    {
      "Effect": "Allow",
      "Principal": {
        "Federated": "arn:aws-cn:iam::111122223333:oidc-provider/issuer.example.com/production"
      },
      "Action": "sts:AssumeRoleWithWebIdentity",
      "Condition": {
        "StringEquals": {
          "issuer.example.com/production:aud": "sts.amazonaws.com",
          "issuer.example.com/production:sub": "system:serviceaccount:shop:cart"
        }
      }
    }
  ]
}
EOF
aws iam create-role --role-name cart --path /team/a/ --assume-role-policy-document file://trust.json
# If the role exists already:
# aws iam update-assume-role-policy --role-name cart --policy-document file://trust.json
# Attach the policies with the permissions of the ServiceAccount, for example:
# aws iam attach-role-policy --role-name cart --policy-arn arn:aws-cn:iam::aws:policy/AmazonS3ReadOnlyAccess
