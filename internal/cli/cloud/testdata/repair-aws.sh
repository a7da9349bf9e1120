## audience
# In the AWS account 111122223333:
aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn arn:aws:iam::111122223333:oidc-provider/issuer.example.com/production --client-id sts.amazonaws.com

## issuer
# Compare the published keys with the keys of the cluster:
lanyard trust issuer --verify https://issuer.example.com/production

## provider
# Once per cluster, in the AWS account 111122223333:
aws iam create-open-id-connect-provider --url https://issuer.example.com/production --client-id-list sts.amazonaws.com

## region
# Use another region, or activate STS in this region of the AWS account 111122223333:
kubectl annotate serviceaccount cart --namespace shop --overwrite \
  lanyard.dev/aws-region=REGION

## role
# In the AWS account 111122223333:
cat > trust.json <<'EOF'
{
  "Version": "2012-10-17",
  "Statement": [
    {
      "Effect": "Allow",
      "Principal": {
        "Federated": "arn:aws:iam::111122223333:oidc-provider/issuer.example.com/production"
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
aws iam update-assume-role-policy --role-name shop-cart --policy-document file://trust.json
# If the role does not exist:
# aws iam create-role --role-name shop-cart --assume-role-policy-document file://trust.json

