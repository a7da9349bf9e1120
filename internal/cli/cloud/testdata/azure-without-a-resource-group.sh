# Once per ServiceAccount:
: "${GROUP:?set it to the resource group of the managed identity}"
az identity create --resource-group "$GROUP" --name other
az identity federated-credential create --resource-group "$GROUP" --identity-name other \
  --name shop-cart \
  --issuer https://issuer.example.com/production --subject system:serviceaccount:shop:cart --audiences api://AzureADTokenExchange
