// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const withProvider = `aws-default-region: eu-central-1
aws-role-arn-prefix: "arn:aws:iam::111122223333:role/"
providers:
- name: example
  audience: example.com
  parameters:
  - {name: role, required: true}
  - {name: region, default: eu}
identities:
- namespace: team-*
  serviceAccount: loki
  annotations: {aws-role-arn: loki, example-role: r}
`

// complete returns the settings of a configuration file.
func complete(t *testing.T, text string) (*options.Options, *annotations.Settings, error) {
	t.Helper()
	o, _, err := configured(t, text, files...)
	if err != nil {
		return nil, nil, err
	}
	s, err := o.Complete([]string{"reserved"})
	if _, errSettings := o.Settings([]string{"reserved"}); (err == nil) != (errSettings == nil) {
		t.Errorf("got error %v, and %v for the settings only", err, errSettings)
	}
	return o, s, err
}

// providersOf returns the names of the providers.
func providersOf(s *annotations.Settings) []string {
	var names []string
	for _, d := range s.Providers {
		names = append(names, d.Name)
	}
	return names
}

func TestTheFileHasProvidersAndMappings(t *testing.T) {
	t.Parallel()
	_, c, err := complete(t, withProvider)
	if err != nil {
		t.Fatal(err)
	}
	// A plain token comes last: it is for ServiceAccounts that ask for nothing else.
	if diff := cmp.Diff([]string{"aws", "azure", "example", "gcp", "token"}, providersOf(c)); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	if got := c.Parameters["example-region"]; got != "eu" {
		t.Errorf("got default %q, want eu", got)
	}
	want := map[string]string{"lanyard.dev/aws-role-arn": "loki", "lanyard.dev/example-role": "r"}
	if diff := cmp.Diff(want, c.Map("team-a", "loki", nil)); diff != "" {
		t.Errorf("mapped (-want +got):\n%s", diff)
	}
}

func TestMistakesOfProvidersAndMappingsHaveTheirLine(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct{ old, replacement, want string }{
		"an unknown key of a provider":      {"audience:", "audiense:", "config.yaml: line 5: field audiense not found"},
		"an unknown annotation":             {"example-role: r", "example-rol: r", "line 12: identities[0].annotations: Forbidden: [lanyard.dev/example-rol]"},
		"a malformed value":                 {"aws-role-arn: loki", "aws-role-arn: a b", `line 12: identities[0].annotations: Invalid value: "a b": [lanyard.dev/aws-role-arn] must be the ARN`},
		"a name without the setting":        {"aws-role-arn-prefix", "# ", `line 12: identities[0].annotations: Invalid value: "loki": `},
		"a mapping without an identity":     {"aws-role-arn: loki, example-role: r", "inject: 'true'", "line 12: identities[0].annotations: Forbidden"},
		"providers that are not a list":     {"providers:", "providers: x\nx:", "line 3: cannot unmarshal"},
		"annotations that are not all kept": {"{name: region, default: eu}", manyParameters(), "the annotations of all providers together may have"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(withProvider, tt.old, tt.replacement, 1)
			if _, _, err := complete(t, text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error:\n%v\nwant:\n%s", err, tt.want)
			}
		})
	}
}

// manyParameters is as many parameters as one provider may have, of the longest
// values.
func manyParameters() string {
	var text []string
	for i := range 15 {
		text = append(text, "{name: p"+string(rune('a'+i))+", maxBytes: 2048}")
	}
	return strings.Join(text, "\n  - ")
}

func TestRestartListsTheSettingsThatARunningProgramCannotChange(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		before, after string
		want          []string
	}{
		"the same file":             {"secure-port: 1", "secure-port: 1", nil},
		"another form":              {"client-allowed-names: [a, b]", "client-allowed-names: a,b", nil},
		"the default":               {"", "secure-port: 9443", nil},
		"a flag takes precedence":   {"log-format: json", "log-format: text", nil},
		"settings that differ":      {"secure-port: 1\nshutdown-delay: 1s", "secure-port: 2\nclient-allowed-names: [a]\nshutdown-delay: 1s", []string{"client-allowed-names", "secure-port"}},
		"a setting that is removed": {"v: 1", "", []string{"v"}},
		"settings of the injection": {"aws-default-region: eu-west-1", "azure-default-audience: a\nexcluded-namespaces: [a]\nadopt: [eks]", nil},
		"providers and mappings":    {"", withProvider, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			before, _, err := configured(t, tt.before, "--log-format=json")
			after, _, errAfter := configured(t, tt.after, "--log-format=json")
			if err != nil || errAfter != nil {
				t.Fatal(err, errAfter)
			}
			if diff := cmp.Diff(tt.want, before.Restart(after), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMappingMustNotHaveAReservedAudience(t *testing.T) {
	t.Parallel()
	_, _, err := complete(t, strings.Replace(withProvider, "example-role: r", "aws-audience: reserved", 1))
	if want := "line 12: identities[0].annotations: Invalid value"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// A program without flags reads the same file, so it must know each setting and whether it
// belongs to the injection.
func TestTheSettingsOfAFileAreTheFlags(t *testing.T) {
	t.Parallel()
	var flags []string
	options.New().FlagSet().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "config" {
			flags = append(flags, flag.Name)
		}
	})
	names := settings.ServingNames()
	for _, f := range settings.Fields(settings.Default()) {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(flags, names); diff != "" {
		t.Errorf("settings (-flags that a file may set, +known to a program without flags):\n%s", diff)
	}
}
