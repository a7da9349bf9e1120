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

// target is a destination for logs with its client and tenant. Empty values are
// taken from the environment.
type target struct {
	Name     string `json:"name"`
	ClientID string `json:"clientID,omitempty"`
	TenantID string `json:"tenantID,omitempty"`
	// ClientSecretFile is the file with the fallback secret, if any.
	ClientSecretFile string `json:"clientSecretFile,omitempty"`
}

// parseTargets reads the list of targets in YAML or JSON.
func parseTargets(content []byte) ([]target, error) {
	var targets []target
	if err := yaml.UnmarshalStrict(content, &targets); err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		return nil, errors.New("no targets given")
	}
	names := map[string]bool{}
	for i, t := range targets {
		switch {
		case t.Name == "":
			return nil, fmt.Errorf("target %d: name is missing", i)
		case names[t.Name]:
			return nil, fmt.Errorf("target %d: duplicate name %q", i, t.Name)
		}
		names[t.Name] = true
	}
	return targets, nil
}

// credential gets a token for the target with the first method that succeeds.
func (t target) credential(ctx context.Context) (rounds.Credential, error) {
	methods := []method{{"workload-identity", t.workloadIdentity}}
	if t.ClientSecretFile != "" {
		methods = append(methods, method{"client-secret", t.clientSecret})
	}
	return getToken(ctx, methods)
}

func (t target) workloadIdentity() (azcore.TokenCredential, error) {
	return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientID: t.ClientID, // empty values are taken from the environment
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
		return nil, errors.New("no client given, want clientID or AZURE_CLIENT_ID")
	}
	tenantID := cmp.Or(t.TenantID, os.Getenv("AZURE_TENANT_ID"))
	return azidentity.NewClientSecretCredential(tenantID, clientID, strings.TrimSpace(string(secret)), nil)
}
