// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestTokenPaths(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		has  values
		want string // in the error; empty for none
	}{
		"a file":                               {values{"aws-role-arn": roleARN, "aws-token-path": eksPath}, ""},
		"a file for each cloud":                {values{"aws-role-arn": roleARN, "aws-token-path": eksPath, "azure-client-id": clientID, "azure-token-path": azPath}, ""},
		"without an identity":                  {values{"aws-token-path": eksPath}, "no effect without"},
		"with a token alone":                   {values{"tokens": "aws", "aws-token-path": eksPath}, ""},
		"a relative path":                      {values{"aws-role-arn": roleARN, "aws-token-path": "a/b"}, "must be the absolute path"},
		"a file at the root":                   {values{"aws-role-arn": roleARN, "aws-token-path": "/token"}, "must be the absolute path"},
		"a directory":                          {values{"aws-role-arn": roleARN, "aws-token-path": "/a/b/"}, "must be the absolute path"},
		"dots":                                 {values{"aws-role-arn": roleARN, "aws-token-path": "/a/../b/c"}, "must be the absolute path"},
		"a character that needs quotes":        {values{"aws-role-arn": roleARN, "aws-token-path": `/a/"/c`}, "must be the absolute path"},
		"a long path":                          {values{"aws-role-arn": roleARN, "aws-token-path": "/a/" + strings.Repeat("x", 254)}, "at most 256 bytes"},
		"beside the token for the API server":  {values{"aws-role-arn": roleARN, "aws-token-path": "/var/run/secrets/kubernetes.io/serviceaccount/other"}, "the token for the API server"},
		"above the token for the API server":   {values{"aws-role-arn": roleARN, "aws-token-path": "/var/run/token"}, "the token for the API server"},
		"below Lanyard's own directory":        {values{"aws-role-arn": roleARN, "aws-token-path": "/var/run/lanyard/aws/token"}, "the tokens of Lanyard"},
		"beside that of another cloud":         {values{"aws-role-arn": roleARN, "aws-token-path": "/a/b", "azure-client-id": clientID, "azure-token-path": "/a/c"}, "lanyard.dev/aws-token-path"},
		"a directory that begins like another": {values{"aws-role-arn": roleARN, "aws-token-path": "/a/b", "azure-client-id": clientID, "azure-token-path": "/ab/c"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			defaults := clusterDefaults()
			defaults.TokenMountPath = "/var/run/lanyard"
			_, errs := annotations.ParseServiceAccount(newKeys(t), tt.has.whole(), defaults)
			if tt.want == "" && len(errs) > 0 || tt.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tt.want)) {
				t.Errorf("got errors %v, want one with %q", errs, tt.want)
			}
		})
	}
}
