// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import "github.com/lanyard-dev/lanyard/pkg/annotations"

// plain is a token for anything that trusts the cluster's issuer: Vault, your
// own OpenID Connect client, OpenShift's audience "openshift".
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
