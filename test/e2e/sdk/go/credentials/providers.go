// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/aliyun/credentials-go/credentials"
	vault "github.com/hashicorp/vault/api"
	"github.com/hashicorp/vault/api/auth/kubernetes"

	"github.com/lanyard-dev/lanyard/test/e2e/sdk/go/internal/rounds"
)

// These clouds are custom providers of Lanyard, see examples/providers.

func alibaba(context.Context) (rounds.Credential, error) {
	chain, err := credentials.NewCredential(nil)
	if err != nil {
		return rounds.Credential{}, err
	}
	credential, err := chain.GetCredential()
	if err != nil {
		return rounds.Credential{}, err
	}
	if credential.SecurityToken == nil {
		return rounds.Credential{}, fmt.Errorf("got a credential of %s without a security token", *credential.ProviderName)
	}
	return rounds.Credential{Secret: *credential.SecurityToken}, nil
}

// ibmService is the service whose variables examples/providers/ibm.yaml sets.
const ibmService = "secrets_manager"

func ibm(context.Context) (rounds.Credential, error) {
	authenticator, err := core.GetAuthenticatorFromEnvironment(ibmService)
	if err != nil {
		return rounds.Credential{}, err
	}
	container, ok := authenticator.(*core.ContainerAuthenticator)
	if !ok {
		return rounds.Credential{}, fmt.Errorf("got the authenticator %T, want one for containers", authenticator)
	}
	token, err := container.GetToken()
	return rounds.Credential{Secret: token}, err
}

// vaultPath is where the auth method of the cluster is mounted. Vault's client has no
// variable for it.
const vaultPath = "production"

// vaultLogin passes the role and the token to the login, as in
// examples/providers/vault.yaml, because Vault's client has no variables for them.
func vaultLogin(ctx context.Context) (rounds.Credential, error) {
	client, err := vault.NewClient(nil)
	if err != nil {
		return rounds.Credential{}, err
	}
	method, err := kubernetes.NewKubernetesAuth(os.Getenv("LANYARD_VAULT_ROLE"),
		kubernetes.WithServiceAccountTokenPath(os.Getenv("LANYARD_VAULT_TOKEN_FILE")), kubernetes.WithMountPath(vaultPath))
	if err != nil {
		return rounds.Credential{}, err
	}
	secret, err := client.Auth().Login(ctx, method)
	if err != nil {
		return rounds.Credential{}, err
	}
	return rounds.Credential{
		Secret: secret.Auth.ClientToken, Expires: time.Now().Add(time.Duration(secret.Auth.LeaseDuration) * time.Second),
	}, nil
}
