// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	eksPath = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"
	azPath  = "/var/run/secrets/azure/tokens/azure-identity-token"
)

func TestTokenPaths(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		has  map[string]string
		want string // in the error, or empty if there is none
	}{
		"a file":                               {map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath}, ""},
		"a file for each cloud":                {map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "azure-client-id": clientID, "azure-token-path": azPath}, ""},
		"without an identity":                  {map[string]string{"aws-token-path": eksPath}, "no effect without"},
		"with a token alone":                   {map[string]string{"tokens": "aws", "aws-token-path": eksPath}, ""},
		"a relative path":                      {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "a/b"}, "must be the absolute path"},
		"a file at the root":                   {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/token"}, "must be the absolute path"},
		"a directory":                          {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/b/"}, "must be the absolute path"},
		"dots":                                 {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/../b/c"}, "must be the absolute path"},
		"a file that no volume can have":       {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/b/..data"}, `begin with ".."`},
		"a directory with such a name":         {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/run/secrets/..a/.b"}, ""},
		"a character that needs quotes":        {map[string]string{"aws-role-arn": roleARN, "aws-token-path": `/a/"/c`}, "must be the absolute path"},
		"a long path":                          {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/" + strings.Repeat("x", 254)}, "at most 256 bytes"},
		"beside the token for the API server":  {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/var/run/secrets/kubernetes.io/serviceaccount/other"}, "the token for the API server"},
		"above the token for the API server":   {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/var/run/secrets/token"}, "the token for the API server"},
		"the other spelling of that":           {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/run/secrets/kubernetes.io/serviceaccount/token"}, "the token for the API server"},
		"below Lanyard's own directory":        {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/var/run/secrets/lanyard/aws/token"}, "the tokens of Lanyard"},
		"below it in the other spelling":       {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/run/secrets/lanyard/aws/token"}, "the tokens of Lanyard"},
		"next to a copy for another cloud":     {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/run/secrets/a/b", "azure-client-id": clientID, "azure-token-path": "/var/run/secrets/a/c"}, "lanyard.dev/aws-token-path"},
		"a directory that begins like another": {map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/run/secrets/a/b", "azure-client-id": clientID, "azure-token-path": "/run/secrets/ab/c"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := clusterSettings(t)
			s.TokenMountPath = "/var/run/secrets/lanyard"
			_, errs := s.ParseServiceAccount("team", "loki", prefixed(tt.has))
			if tt.want == "" && len(errs) > 0 || tt.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tt.want)) {
				t.Errorf("got errors %v, want one with %q", errs, tt.want)
			}
		})
	}
}

// A copy hides the directory that it is mounted at, in every container of the pods. A
// person who writes a ServiceAccount must not hide the files of a program.
func TestTokenPathsAreBelowThePrefixes(t *testing.T) {
	t.Parallel()
	const usual = "must be in a directory below /var/run/secrets/ or /run/secrets/ (--token-path-prefixes)"
	opt := []string{"/opt/tokens/", "/var/run/secrets/"}
	for path, tt := range map[string]struct {
		prefixes []string
		want     string
	}{
		"/var/run/secrets/eks.amazonaws.com/serviceaccount/token": {nil, ""},
		"/run/secrets/x/token":         {nil, ""},
		"/var/run/secrets/x/y/token":   {opt, ""},
		"/opt/tokens/x/token":          {opt, ""},
		"/opt/tokens/token":            {opt, "must be in a directory below /opt/tokens/ or /var/run/secrets/ (--token-path-prefixes)"},
		"/run/secrets/x/y/token":       {opt, "must be in a directory below /opt/tokens/"},
		"/opt/tokens/x/y/token":        {nil, usual},
		"/etc/passwd":                  {nil, usual},
		"/usr/bin/sh":                  {nil, usual},
		"/proc/self":                   {nil, usual},
		"/dev/null":                    {nil, usual},
		"/app/config.yaml":             {nil, usual},
		"/etc/nginx/conf.d/x":          {nil, usual},
		"/sys/x":                       {nil, usual},
		"/bin/sh":                      {nil, usual},
		"/lib/x":                       {nil, usual},
		"/var/run/x/token":             {nil, usual},
		"/run/x/token":                 {nil, usual},
		"/var/run/secretsx/token":      {nil, usual},
		"/var/run/secrets/token":       {nil, "the token for the API server"},
		"/run/secrets/token":           {nil, "the token for the API server"},
		"/run/secrets/kubernetes.io/x": {nil, "the token for the API server"},
		"/run/secrets/kubernetes.io/serviceaccount/token":  {nil, "the token for the API server"},
		"/run/secrets/lanyard.dev/serviceaccount/x/token":  {nil, "the tokens of Lanyard"},
		"/run/secrets/lanyard.dev/token":                   {nil, "the tokens of Lanyard"},
		"/var/run/secrets/lanyard.dev/serviceaccount/file": {nil, "the tokens of Lanyard"},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := clusterSettings(t)
			s.TokenMountPath, s.TokenPathPrefixes = annotations.DefaultTokenMountPath, tt.prefixes
			_, errs := s.ParseServiceAccount("team", "loki", prefixed(map[string]string{"aws-role-arn": roleARN, "aws-token-path": path}))
			if tt.want == "" && len(errs) > 0 || tt.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tt.want)) {
				t.Errorf("got errors %v, want one with %q", errs, tt.want)
			}
		})
	}
}

func TestTheTokenMountPathIsAnAbsolutePathInItsShortestForm(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		annotations.DefaultTokenMountPath: true, "/a": true, "/a b": true,
		"": false, "/": false, "a": false, "/a/": false, "/a//b": false, "/a/../b": false, "/a:b": false, "/a\nb": false,
	} {
		if err := annotations.ValidateTokenMountPath(value); (err == nil) != want {
			t.Errorf("%q: got error %v, want it valid: %t", value, err, want)
		}
	}
}

func TestAPrefixOfTokenPathsIsADirectory(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"/var/run/secrets/": true, "/a/": true,
		"": false, "/": false, "a/": false, "/a": false, "/a//b/": false, "/a/../b/": false, "/a/./": false, "/a b/": false,
	} {
		if err := annotations.ValidateTokenPathPrefix(value); (err == nil) != want {
			t.Errorf("%q: got error %v, want it valid: %t", value, err, want)
		}
	}
}
