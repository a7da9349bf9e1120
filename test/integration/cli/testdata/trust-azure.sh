# Once per ServiceAccount:
GROUP=workload-identities
az identity create --resource-group "$GROUP" --name shop-cart
az identity federated-credential create --resource-group "$GROUP" --identity-name shop-cart \
  --name shop-cart \
  --issuer https://issuer.example.com/production --subject system:serviceaccount:shop:cart --audiences api://AzureADTokenExchange

CLIENT_ID=$(az identity show --resource-group "$GROUP" --name shop-cart --query clientId --output tsv)

# Tell Lanyard:
kubectl annotate serviceaccount cart --namespace shop --overwrite \
  lanyard.dev/azure-client-id="$CLIENT_ID"
