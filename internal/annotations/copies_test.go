// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/annotations"
)

const (
	eksPath = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"
	azPath  = "/var/run/secrets/azure/tokens/azure-identity-token"
)

// whole returns annotations with their prefix.
func whole(values map[string]string) map[string]string {
	result := map[string]string{}
	for key, value := range values {
		result["lanyard.dev/"+key] = value
	}
	return result
}

func TestTokenPaths(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		has  map[string]string
		want string // in the error; empty for none
	}{
		"a file":                               {map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath}, ""},
		"a file for each cloud":                {map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "azure-client-id": clientID, "azure-token-path": azPath}, ""},
		"without an identity":                  {map[string]string{"aws-token-path": eksPath}, "no effect without"},
		"with a token alone":                   {map[string]string{"tokens": "aws", "aws-token-path": eksPath}, ""},
		"a relative path":                      {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "a/b"}, "must be the absolute path"},
		"a file at the root":                   {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/token"}, "must be the absolute path"},
		"a directory":                          {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/b/"}, "must be the absolute path"},
		"dots":                                 {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/../b/c"}, "must be the absolute path"},
		"a character that needs quotes":        {map[string]string{"aws-role-arn": roleARN, "aws-token-path": `/a/"/c`}, "must be the absolute path"},
		"a long path":                          {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/" + strings.Repeat("x", 254)}, "at most 256 bytes"},
		"beside the token for the API server":  {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/var/run/secrets/kubernetes.io/serviceaccount/other"}, "the token for the API server"},
		"above the token for the API server":   {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/var/run/token"}, "the token for the API server"},
		"below Lanyard's own directory":        {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/var/run/lanyard/aws/token"}, "the tokens of Lanyard"},
		"beside that of another cloud":         {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/b", "azure-client-id": clientID, "azure-token-path": "/a/c"}, "lanyard.dev/aws-token-path"},
		"a directory that begins like another": {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/b", "azure-client-id": clientID, "azure-token-path": "/ab/c"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			defaults := clusterDefaults()
			defaults.TokenMountPath = "/var/run/lanyard"
			_, errs := annotations.ParseServiceAccount(newKeys(t), whole(tt.has), defaults)
			if tt.want == "" && len(errs) > 0 || tt.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tt.want)) {
				t.Errorf("got errors %v, want one with %q", errs, tt.want)
			}
		})
	}
}
