// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/lanyard-dev/lanyard/test/e2e/sdk/go/internal/rounds"
)

// scope is the scope of Azure Monitor's Logs Ingestion API in the public cloud.
const scope = "https://monitor.azure.com/.default"

// method is one way to get a token.
type method struct {
	name string
	open func() (azcore.TokenCredential, error)
}

// getToken tries the methods in order, with the SDK's chain.
func getToken(ctx context.Context, methods []method) (rounds.Credential, error) {
	used := ""
	links := make([]azcore.TokenCredential, 0, len(methods))
	for _, m := range methods {
		links = append(links, link{m, &used})
	}
	chain, err := azidentity.NewChainedTokenCredential(links, nil)
	if err != nil {
		return rounds.Credential{}, err
	}
	token, err := chain.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		return rounds.Credential{}, err
	}
	return rounds.Credential{Secret: token.Token, Expires: token.ExpiresOn, Method: used}, nil
}

// link is a method in a chain that continues after every error. The Go SDK's
// chain continues only if a credential is unavailable, and ends if it was
// refused. The chain of the Rust SDK, which Vector uses, continues after any
// error. So link reports every error as unavailable.
type link struct {
	method

	used *string
}

// GetToken gets a token with the method and records the method's name.
func (l link) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	credential, err := l.open()
	if err != nil {
		return azcore.AccessToken{}, l.unavailable(err)
	}
	token, err := credential.GetToken(ctx, options)
	if err != nil {
		return azcore.AccessToken{}, l.unavailable(err)
	}
	*l.used = l.name
	return token, nil
}

func (l link) unavailable(err error) error {
	return azidentity.NewCredentialUnavailableError(l.name + ": " + err.Error())
}
