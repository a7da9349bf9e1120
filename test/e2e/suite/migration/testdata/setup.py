# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes the file that "gcloud iam workload-identity-pools create-cred-config" writes
# in the init container of gcp-workload-identity-federation-webhook.
import json
import os

with open(os.environ["CLOUDSDK_CONFIG"] + "/federation.json", "w") as file:
    json.dump({
        "type": "external_account",
        "audience": "//iam.googleapis.com/" + os.environ["GCP_WORKLOAD_IDENTITY_PROVIDER"],
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + os.environ["GCP_SERVICE_ACCOUNT"] + ":generateAccessToken",
        "credential_source": {"file": "/var/run/secrets/sts.googleapis.com/serviceaccount/token"},
    }, file)
