// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import "github.com/lanyard-dev/lanyard/pkg/annotations"

// plain is a token for anything that trusts the cluster's issuer: Vault,
// an OpenID Connect client of one's own, OpenShift's audience "openshift".
func (b *builder) plain(identity *annotations.Plain) Provider {
	return Provider{
		Name:        Plain,
		Token:       b.token(identity.Audience, "token"),
		Credentials: []Variable{variable("LANYARD_TOKEN_FILE", b.file("token"))},
	}
}
