## audience
# The managed identity of the client ID:
read -r GROUP IDENTITY <<EOF
$(az identity list --query "[?clientId=='55556666-cccc-7777-dddd-8888eeee9999'].[resourceGroup, name]" --output tsv)
EOF
CREDENTIAL=$(az identity federated-credential list --resource-group "$GROUP" --identity-name "$IDENTITY" \
  --query "[?subject=='system:serviceaccount:shop:cart'].name | [0]" --output tsv)
az identity federated-credential update --resource-group "$GROUP" --identity-name "$IDENTITY" --name "$CREDENTIAL" \
  --issuer https://issuer.example.com/production --subject system:serviceaccount:shop:cart --audiences api://AzureADTokenExchange
# For an application in place of a managed identity: az ad app federated-credential list --id 55556666-cccc-7777-dddd-8888eeee9999

## client
# Look for the client ID, not the object ID:
az identity list --query '[].{name: name, clientId: clientId}' --output table
kubectl annotate serviceaccount cart --namespace shop --overwrite \
  lanyard.dev/azure-client-id=CLIENT_ID

## credential
# The managed identity of the client ID:
read -r GROUP IDENTITY <<EOF
$(az identity list --query "[?clientId=='55556666-cccc-7777-dddd-8888eeee9999'].[resourceGroup, name]" --output tsv)
EOF
az identity federated-credential create --resource-group "$GROUP" --identity-name "$IDENTITY" \
  --name shop-cart \
  --issuer https://issuer.example.com/production --subject system:serviceaccount:shop:cart --audiences api://AzureADTokenExchange
# For an application in place of a managed identity: az ad app federated-credential list --id 55556666-cccc-7777-dddd-8888eeee9999

## issuer
# Compare the published keys with the keys of the cluster:
lanyard trust issuer --verify https://issuer.example.com/production

## tenant
kubectl annotate serviceaccount cart --namespace shop --overwrite \
  lanyard.dev/azure-tenant-id="$(az account show --query tenantId --output tsv)"

