// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestLoadUsesTheSettingsOfTheInjection(t *testing.T) {
	t.Parallel()
	s, err := settings.Load([]byte(`
secure-port: 70000
token-mount-path: /var/run/x
token-expiration-seconds: 7200
token-path-prefixes: [/opt/tokens/, /run/secrets/]
excluded-namespaces: a,b
default-allowed-identities: '{namespace}-*'
aws-default-region: eu-central-1
adopt: [eks]
`), []string{"https://issuer.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	if s.TokenMountPath != "/var/run/x" || s.TokenExpirationSeconds != 7200 || s.Parameters["aws-region"] != "eu-central-1" || len(s.Peers) != 1 {
		t.Errorf("got %+v", s)
	}
	for name, lists := range map[string][2][]string{
		"token-path-prefixes":        {{"/opt/tokens/", "/run/secrets/"}, s.TokenPathPrefixes},
		"excluded-namespaces":        {{"a", "b"}, s.ExcludedNamespaces},
		"default-allowed-identities": {{"{namespace}-*"}, s.AllowedIdentities},
		"reserved audiences":         {append(annotations.CommonAPIServerAudiences(), "https://issuer.example.com"), s.ReservedAudiences},
	} {
		if diff := cmp.Diff(lists[0], lists[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLoadWithoutSettingsHasTheDefaults(t *testing.T) {
	t.Parallel()
	s, err := settings.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.TokenMountPath != annotations.DefaultTokenMountPath || s.TokenExpirationSeconds != 3600 || !slices.Equal(s.ExcludedNamespaces, []string{"kube-system"}) {
		t.Errorf("got %+v", s)
	}
}

func TestLoadNamesTheMistake(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct{ text, want string }{
		"an unknown setting":        {"annotation-prefix: example.com/", "config: annotation-prefix: unknown setting; settings have the names of the flags of lanyard-webhook"},
		"the file itself":           {"config: x", "config: config: unknown setting"},
		"a list for a text":         {"token-mount-path: [/a/b]", "config: token-mount-path: got a list, want a text"},
		"a text for a number":       {"token-expiration-seconds: many", `config: token-expiration-seconds: strconv.ParseInt: parsing "many": invalid syntax`},
		"a value that is not valid": {"token-mount-path: x", `token-mount-path: got "x", want an absolute path`},
		"a file that is not YAML":   {"[", "config: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if s, err := settings.Load([]byte(tt.text), nil); s != nil || err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %+v and error %v, want error %s", s, err, tt.want)
			}
		})
	}
}
