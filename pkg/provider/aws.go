// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// aws is IAM's AssumeRoleWithWebIdentity.
func (b *builder) aws(identity *annotations.AWS) Provider {
	p := Provider{
		Name:  AWS,
		Token: b.token(identity.Audience, "aws/token"),
		Credentials: []Variable{
			variable("AWS_ROLE_ARN", identity.RoleARN),
			variable("AWS_WEB_IDENTITY_TOKEN_FILE", b.file("aws/token")),
		},
		Settings: [][]Variable{
			{variable("AWS_ROLE_SESSION_NAME", sessionName(b.Namespace, b.ServiceAccount))},
			// botocore before mid-2025, the Go SDK v1, Java v1 and others of
			// that age ask the global endpoint in us-east-1 without it.
			{variable("AWS_STS_REGIONAL_ENDPOINTS", "regional")},
		},
		// Static keys come first in every SDK's chain, a profile and the files
		// that it stands in in JavaScript's, a profile in boto3's; what a
		// container's own credential service is set up for is hardly this
		// identity.
		Shadowing: []string{
			"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE",
			"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
			"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		},
	}
	if identity.Region != "" {
		// boto3 reads the one, JavaScript and Java the other. A container that
		// sets one of them means it for both.
		p.Settings = append(p.Settings, []Variable{
			variable("AWS_REGION", identity.Region),
			variable("AWS_DEFAULT_REGION", identity.Region),
		})
	}
	return p
}

// maxSessionName is STS's limit for RoleSessionName; the least is 2.
const maxSessionName = 64

// sessionName shows in CloudTrail whose pod it was. Neither "@" nor "=" can be
// in the name of an account or a namespace, so one session name is one
// account. A longer one is cut, and a hash of the whole keeps it apart from
// others that begin alike.
func sessionName(namespace, serviceAccount string) string {
	name := serviceAccount + "@" + namespace
	if len(name) <= maxSessionName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "=" + hex.EncodeToString(sum[:8])
	return name[:maxSessionName-len(suffix)] + suffix
}
