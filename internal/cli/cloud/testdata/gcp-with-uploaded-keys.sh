# Once per cluster:
PROJECT=$(gcloud projects describe 123456789012 --format 'value(projectId)')
gcloud services enable --project "$PROJECT" \
  iam.googleapis.com sts.googleapis.com iamcredentials.googleapis.com
gcloud iam workload-identity-pools create production --project "$PROJECT" --location global
cat > jwks.json <<'EOF'
{"keys":[{"use":"sig","kty":"RSA","kid":"key-1","alg":"RS256","n":"AQAB","e":"AQAB"}]}
EOF
gcloud iam workload-identity-pools providers create-oidc kubernetes \
  --project "$PROJECT" --location global --workload-identity-pool production \
  --issuer-uri https://issuer.example.com/production --attribute-mapping google.subject=assertion.sub \
  --jwk-json-path jwks.json
# Once per ServiceAccount. Give the roles that it needs to this principal:
PRINCIPAL=principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/production/subject/system:serviceaccount:shop:cart
# For example: gcloud storage buckets add-iam-policy-binding gs://BUCKET \
#   --role roles/storage.objectViewer --member "$PRINCIPAL"
