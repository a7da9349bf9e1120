// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"cloud.google.com/go/auth/credentials"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/lanyard-dev/lanyard/test/e2e/sdk/go/internal/rounds"
)

func aws(ctx context.Context) (rounds.Credential, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return rounds.Credential{}, err
	}
	credentials, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return rounds.Credential{}, err
	}
	return rounds.Credential{Secret: credentials.SessionToken, Expires: credentials.Expires}, nil
}

func azure(ctx context.Context) (rounds.Credential, error) {
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return rounds.Credential{}, err
	}
	token, err := credential.GetToken(ctx, policy.TokenRequestOptions{
		Scopes: []string{"https://management.azure.com/.default"},
	})
	return rounds.Credential{Secret: token.Token, Expires: token.ExpiresOn}, err
}

func gcp(ctx context.Context) (rounds.Credential, error) {
	found, err := credentials.DetectDefault(&credentials.DetectOptions{
		Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"},
	})
	if err != nil {
		return rounds.Credential{}, err
	}
	token, err := found.Token(ctx)
	if err != nil {
		return rounds.Credential{}, err
	}
	return rounds.Credential{Secret: token.Value, Expires: token.Expiry}, nil
}
