// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import "github.com/lanyard-dev/lanyard/pkg/annotations"

// plain is a token for any service that trusts the cluster's issuer, such as Vault.
func plain() *annotations.Provider {
	return &annotations.Provider{
		Name:             "token",
		Parameters:       []annotations.Parameter{annotations.TokenPath()},
		MaxAudienceBytes: 1024,
		TokenPath:        "token",
		CopyVolume:       "lanyard-token",
		Variables:        []annotations.Variable{{Name: "LANYARD_TOKEN_FILE", Value: "{token-file}", Credential: true}},
	}
}
