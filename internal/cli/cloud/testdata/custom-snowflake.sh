# Once per ServiceAccount. Then grant the user its roles:
snow sql --query "CREATE USER INFERENCE TYPE = SERVICE WORKLOAD_IDENTITY = (
  TYPE = OIDC
  ISSUER = 'https://issuer.example.com/production'
  SUBJECT = 'system:serviceaccount:shop:inference'
  OIDC_AUDIENCE_LIST = ('snowflakecomputing.com')
)"
