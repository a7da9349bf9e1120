// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/e2e/sdk/go/internal/rounds"
)

// target is where logs go, and who the forwarder is there. A client or tenant
// that is left empty is the environment's.
type target struct {
	Name     string `json:"name"`
	ClientID string `json:"clientID,omitempty"`
	TenantID string `json:"tenantID,omitempty"`
	// ClientSecretFile holds the secret to fall back on; empty for none.
	ClientSecretFile string `json:"clientSecretFile,omitempty"`
}

// parseTargets reads the list of targets, in YAML or JSON.
func parseTargets(content []byte) ([]target, error) {
	var targets []target
	if err := yaml.UnmarshalStrict(content, &targets); err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		return nil, errors.New("got no target, want some")
	}
	names := map[string]bool{}
	for i, t := range targets {
		switch {
		case t.Name == "":
			return nil, fmt.Errorf("target %d: got no name, want one", i)
		case names[t.Name]:
			return nil, fmt.Errorf("target %d: got the name %q again, want another", i, t.Name)
		}
		names[t.Name] = true
	}
	return targets, nil
}

// credential gets a token for the target, by the first method that gives one.
func (t target) credential(ctx context.Context) (rounds.Credential, error) {
	methods := []method{{"workload-identity", t.workloadIdentity}}
	if t.ClientSecretFile != "" {
		methods = append(methods, method{"client-secret", t.clientSecret})
	}
	return getToken(ctx, methods)
}

func (t target) workloadIdentity() (azcore.TokenCredential, error) {
	return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientID: t.ClientID, // this and the next are the environment's where empty
		TenantID: t.TenantID,
	})
}

func (t target) clientSecret() (azcore.TokenCredential, error) {
	secret, err := os.ReadFile(t.ClientSecretFile)
	if err != nil {
		return nil, err
	}
	clientID := cmp.Or(t.ClientID, os.Getenv("AZURE_CLIENT_ID"))
	if clientID == "" {
		return nil, errors.New("got no client, want clientID or AZURE_CLIENT_ID")
	}
	tenantID := cmp.Or(t.TenantID, os.Getenv("AZURE_TENANT_ID"))
	return azidentity.NewClientSecretCredential(tenantID, clientID, strings.TrimSpace(string(secret)), nil)
}
