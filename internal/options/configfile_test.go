// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/settings"
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
func complete(t *testing.T, text string) (*options.Options, *settings.Settings, error) {
	t.Helper()
	o, _, err := configured(t, text, files...)
	if err != nil {
		return nil, nil, err
	}
	_, err = o.Complete()
	s, errSettings := o.Settings([]string{"reserved"})
	if (err == nil) != (errSettings == nil) {
		t.Errorf("got error %v, and %v for the settings only", err, errSettings)
	}
	return o, s, err
}

// providersOf returns the names of the providers.
func providersOf(s *settings.Settings) []string {
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

func TestReloadTakesUpProvidersAndMappingsOnly(t *testing.T) {
	t.Parallel()
	o, c, err := complete(t, withProvider)
	if err != nil {
		t.Fatal(err)
	}
	reserved := c.ReservedAudiences
	changed := strings.NewReplacer("name: example", "name: other", "example-role", "other-role", "eu-central-1", "us-east-1", "aws-role-arn-prefix", "azure-default-audience").Replace(withProvider)
	changed = strings.Replace(changed, "aws-role-arn: loki, ", "", 1)
	reloaded, restart, err := o.Reload([]byte(changed), reserved)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"aws", "azure", "gcp", "other", "token"}, providersOf(reloaded)); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"aws-default-region", "aws-role-arn-prefix", "azure-default-audience"}, restart); diff != "" {
		t.Errorf("settings that need a restart (-want +got):\n%s", diff)
	}
	if got := reloaded.Parameters["aws-region"]; got != "eu-central-1" {
		t.Errorf("got region %q, want it as it was", got)
	}
	if !slices.Equal(reloaded.ReservedAudiences, []string{"reserved"}) || reloaded.TokenExpirationSeconds != 3600 {
		t.Errorf("got %+v, want the rest as it was", reloaded.Settings)
	}
	if got := providersOf(c); !slices.Contains(got, "example") || slices.Contains(got, "other") {
		t.Errorf("got %q in the settings before, want them unchanged", got)
	}
	if _, restart, err := o.Reload([]byte(withProvider), reserved); err != nil || len(restart) > 0 {
		t.Errorf("the same file: got %q and error %v", restart, err)
	}
	for _, text := range []string{"providers: [", "x: [", "providers: [{name: aws}]", strings.Replace(withProvider, "example-role: r", "x: y", 1), strings.Replace(withProvider, "example-role: r", "aws-audience: reserved", 1)} {
		if reloaded, _, err := o.Reload([]byte(text), reserved); err == nil {
			t.Errorf("%q: got %+v and no error", text, reloaded)
		}
	}
}

// A mistake that only a start reports stays unnoticed until no replica starts.
func TestAReloadDeniesWhatAStartDenies(t *testing.T) {
	t.Parallel()
	o, _, err := complete(t, "secure-port: 8443\n"+withProvider)
	if err != nil {
		t.Fatal(err)
	}
	for sentence, setting := range map[string]string{
		"an unknown setting":               "no-such-setting: 1",
		"a lifetime that is too short":     "token-expiration-seconds: 5",
		"a glob with another variable":     "default-allowed-identities: '{nmespace}'",
		"a text for a number":              "v: many",
		"a malformed region":               "azure-default-tenant-id: not a tenant",
		"a list for a text":                "kubeconfig: [a]",
		"names of callers without a CA":    "client-allowed-names: [a]",
		"a port that no server listens on": "secure-port: 65536",
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			text := setting + "\n" + withProvider
			start, name, errStart := configured(t, text, files...)
			if errStart == nil {
				_, errStart = start.Complete()
			}
			_, _, err := o.Reload([]byte(text), nil)
			if errStart == nil || err == nil || strings.ReplaceAll(errStart.Error(), name, o.ConfigFile) != err.Error() {
				t.Errorf("got error %v from a reload, and %v from a start", err, errStart)
			}
		})
	}
	// The command line takes precedence, as in a start.
	for _, text := range []string{"tls-cert-file: ''\n" + withProvider, "secure-port: 7443\n" + withProvider} {
		if _, _, err := o.Reload([]byte(text), nil); err != nil {
			t.Errorf("%.20q: got error %v, want none", text, err)
		}
	}
}

// A program without flags reads the same file: it must know each setting, and whether it is
// about the injection.
func TestTheSettingsOfAFileAreTheFlags(t *testing.T) {
	t.Parallel()
	var flags []string
	options.New().FlagSet().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "config" {
			flags = append(flags, flag.Name)
		}
	})
	names := settings.ServingNames()
	values := settings.Default()
	for _, f := range values.Fields() {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(flags, names); diff != "" {
		t.Errorf("settings (-flags that a file may set, +known to a program without flags):\n%s", diff)
	}
}
