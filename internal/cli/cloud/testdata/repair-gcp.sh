## audience
# The list replaces the allowed audiences of the provider:
PROJECT=$(gcloud projects describe 123456789012 --format 'value(projectId)')
gcloud iam workload-identity-pools providers update-oidc kubernetes \
  --project "$PROJECT" --location global --workload-identity-pool production \
  --allowed-audiences https://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/production/providers/kubernetes

## condition
PROJECT=$(gcloud projects describe 123456789012 --format 'value(projectId)')
gcloud iam workload-identity-pools providers describe kubernetes \
  --project "$PROJECT" --location global --workload-identity-pool production --format 'value(attributeCondition)'

## issuer
# Compare the published keys with the keys of the cluster:
lanyard trust issuer --verify https://issuer.example.com/production

## issuer-uri
PROJECT=$(gcloud projects describe 123456789012 --format 'value(projectId)')
gcloud iam workload-identity-pools providers update-oidc kubernetes \
  --project "$PROJECT" --location global --workload-identity-pool production \
  --issuer-uri https://issuer.example.com/production

## keys
# Compare the published keys with the keys of the cluster:
lanyard trust issuer --verify https://issuer.example.com/production

# Or upload the keys, so that Google Cloud does not read the issuer:
kubectl get --raw /openid/v1/jwks > jwks.json
PROJECT=$(gcloud projects describe 123456789012 --format 'value(projectId)')
gcloud iam workload-identity-pools providers update-oidc kubernetes \
  --project "$PROJECT" --location global --workload-identity-pool production \
  --jwk-json-path jwks.json

## member
# Once per ServiceAccount:
gcloud iam service-accounts add-iam-policy-binding shop-cart@my-project.iam.gserviceaccount.com \
  --role roles/iam.workloadIdentityUser \
  --member principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/production/subject/system:serviceaccount:shop:cart

## provider
# Once per cluster:
PROJECT=$(gcloud projects describe 123456789012 --format 'value(projectId)')
gcloud services enable --project "$PROJECT" \
  iam.googleapis.com sts.googleapis.com iamcredentials.googleapis.com
gcloud iam workload-identity-pools create production --project "$PROJECT" --location global
gcloud iam workload-identity-pools providers create-oidc kubernetes \
  --project "$PROJECT" --location global --workload-identity-pool production \
  --issuer-uri https://issuer.example.com/production --attribute-mapping google.subject=assertion.sub

## service
gcloud services enable iamcredentials.googleapis.com --project my-project

