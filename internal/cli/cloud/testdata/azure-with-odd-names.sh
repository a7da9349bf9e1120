# Once per ServiceAccount:
GROUP=workload-identities
az identity create --resource-group "$GROUP" --name 1-shop-cart-v2
az identity federated-credential create --resource-group "$GROUP" --identity-name 1-shop-cart-v2 \
  --name 1-shop-cart-v2 \
  --issuer https://issuer.example.com/production --subject system:serviceaccount:1-shop:cart.v2 --audiences api://AzureADTokenExchange
