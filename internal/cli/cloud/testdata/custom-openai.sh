# Once per cluster, on the OpenAI Platform: a workload identity provider with
#   issuer:   https://issuer.example.com/production
#   audience: https://api.openai.com/v1
# Its ID is in the settings of the webhook: idp-0123456789

# Once per ServiceAccount: a mapping of the provider with
#   sub:             system:serviceaccount:shop:inference
#   service account: sa-0123456789
