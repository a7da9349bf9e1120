# Once per cluster:
PROJECT=my-project
gcloud services enable --project "$PROJECT" \
  iam.googleapis.com sts.googleapis.com iamcredentials.googleapis.com
gcloud iam workload-identity-pools create production --project "$PROJECT" --location global
gcloud iam workload-identity-pools providers create-oidc kubernetes \
  --project "$PROJECT" --location global --workload-identity-pool production \
  --issuer-uri https://issuer.example.com/production --attribute-mapping google.subject=assertion.sub

# Once per ServiceAccount. Give the roles that it needs to this principal:
PRINCIPAL=principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/production/subject/system:serviceaccount:shop:cart
# For example: gcloud storage buckets add-iam-policy-binding gs://BUCKET \
#   --role roles/storage.objectViewer --member "$PRINCIPAL"

# Tell Lanyard:
kubectl annotate serviceaccount cart --namespace shop --overwrite \
  lanyard.dev/gcp-workload-identity-provider=projects/123456789012/locations/global/workloadIdentityPools/production/providers/kubernetes
