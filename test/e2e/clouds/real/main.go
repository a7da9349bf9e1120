// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command real gets credentials from real accounts of AWS, Azure and Google for an injected pod,
// and requires that they refuse another pod. README.md describes the registrations at the
// clouds. The test performs the same steps with the emulators.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetLogger(logr.Discard()) // envtest's own log
	s, err := newSettings(os.Getenv)
	_ = os.Unsetenv("LANYARD_SIGNING_KEY") // which no other process needs
	if err == nil {
		err = run(ctx, os.Stdout, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(1)
	}
}

// settings describes what is registered at the clouds.
type settings struct {
	// issuer is where the public key is published.
	issuer string
	// key is the private key that signs the tokens, in PEM.
	key string
	// annotations are those of both ServiceAccounts.
	annotations map[string]string

	// caFile and environment redirect to the emulators. They are empty for the clouds.
	caFile      string
	environment []string
}

// newSettings reads the settings from variables of the environment.
func newSettings(getenv func(string) string) (*settings, error) {
	var missing []string
	get := func(name string) string {
		value := getenv(name)
		if value == "" {
			missing = append(missing, name)
		}
		return value
	}
	s := &settings{
		issuer: get("LANYARD_ISSUER"),
		key:    get("LANYARD_SIGNING_KEY"),
		annotations: map[string]string{
			"lanyard.dev/aws-role-arn": get("LANYARD_AWS_ROLE_ARN"),
			// STS is active in this region in every account.
			"lanyard.dev/aws-region":                     "us-east-1",
			"lanyard.dev/azure-client-id":                get("LANYARD_AZURE_CLIENT_ID"),
			"lanyard.dev/azure-tenant-id":                get("LANYARD_AZURE_TENANT_ID"),
			"lanyard.dev/gcp-workload-identity-provider": get("LANYARD_GCP_WORKLOAD_IDENTITY_PROVIDER"),
			"lanyard.dev/gcp-service-account":            get("LANYARD_GCP_SERVICE_ACCOUNT"),
		},
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("not set: %s; test/e2e/clouds/real/README.md has their values", strings.Join(missing, ", "))
	}
	return s, nil
}
