// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// The API server of many clusters accepts tokens whose audience is the issuer.
func TestTheFirstInstallByPoliciesReservesTheIssuer(t *testing.T) {
	_, block, _ := strings.Cut(tree.Read(t, root, "docs/policies.md"), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	if !strings.Contains(block, `lanyard policies --reserved-audiences "$ISSUER"`) || !strings.Contains(block, "lanyard check") {
		t.Errorf("docs/policies.md: want the issuer as a reserved audience, and the check, in the first commands:\n%s", block)
	}
}

// The session name proves nothing, because a container can set AWS_ROLE_SESSION_NAME.
func TestThePageOnAWSSaysWhatProvesTheCaller(t *testing.T) {
	_, section, _ := strings.Cut(tree.Read(t, root, "docs/clouds/aws.md"), "## The name of the session\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !strings.Contains(section, "The name is a hint") || !strings.Contains(section, "the subject in the event `AssumeRoleWithWebIdentity`") {
		t.Errorf("docs/clouds/aws.md: got\n%s\nwant the proof, next to the name", section)
	}
}
