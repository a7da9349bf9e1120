// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// withProfiles returns an AWS identity with profiles.
func withProfiles(profiles ...annotations.Profile) annotations.Identity {
	aws := identity("aws", "sts.amazonaws.com", "role-arn", roleARN, "region", "eu-central-1")
	aws.Profiles = profiles
	return aws
}

const auditARN, backupARN = "arn:aws:iam::444455556666:role/audit", "arn:aws:iam::444455556666:role/backup"

func twoProfiles() []annotations.Profile {
	return []annotations.Profile{{Name: "audit", Identity: auditARN}, {Name: "backup", Identity: backupARN, Source: "default"}}
}

func TestProfilesAreInAConfigFile(t *testing.T) {
	t.Parallel()
	windows := func(s *provider.Subject) { s.Windows = true }
	for sentence, tt := range map[string]struct {
		region, content, variable string
		change                    func(*provider.Subject)
	}{
		"with a token, and with another profile's credentials": {
			region:   "eu-central-1",
			variable: mountPath + "/aws/config",
			content: `[default]
role_arn = ` + roleARN + `
web_identity_token_file = /var/run/secrets/lanyard.dev/serviceaccount/aws/token
role_session_name = loki@team-a
region = eu-central-1
[profile audit]
role_arn = ` + auditARN + `
web_identity_token_file = /var/run/secrets/lanyard.dev/serviceaccount/aws/token
role_session_name = loki@team-a
region = eu-central-1
[profile backup]
role_arn = ` + backupARN + `
source_profile = default
role_session_name = loki@team-a
region = eu-central-1
`,
		},
		"without a region, on Windows": {
			change:   windows,
			variable: `C:\var\run\secrets\lanyard.dev\serviceaccount\aws\config`,
			content: `[default]
role_arn = ` + roleARN + `
web_identity_token_file = C:\var\run\secrets\lanyard.dev\serviceaccount\aws\token
role_session_name = loki@team-a
[profile audit]
role_arn = ` + auditARN + `
web_identity_token_file = C:\var\run\secrets\lanyard.dev\serviceaccount\aws\token
role_session_name = loki@team-a
[profile backup]
role_arn = ` + backupARN + `
source_profile = default
role_session_name = loki@team-a
`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := subject()
			if tt.change != nil {
				tt.change(s)
			}
			aws := withProfiles(twoProfiles()...)
			aws.Values["region"] = tt.region
			injection := provider.NewInjection([]annotations.Identity{aws}, s)
			want := provider.File{Annotation: "aws-config", Path: "aws/config", Content: tt.content}
			if diff := cmp.Diff(want, injection.Providers[0].File); diff != "" {
				t.Errorf("file (-want +got):\n%s", diff)
			}
			if got := expanded(injection)["AWS_CONFIG_FILE"]; got != tt.variable {
				t.Errorf("AWS_CONFIG_FILE: got %q, want %q", got, tt.variable)
			}
			if got := injection.Providers[0].Selectors; !slices.Equal(got, []string{"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}) {
				t.Errorf("selectors: got %q, want AWS_PROFILE and AWS_DEFAULT_PROFILE", got)
			}
			checkInjection(t, injection)
		})
	}
}

func TestWithoutProfilesThereIsNoConfigFile(t *testing.T) {
	t.Parallel()
	p := provider.NewInjection([]annotations.Identity{withProfiles()}, subject()).Providers[0]
	if p.File != (provider.File{}) || len(p.Selectors)+len(p.Profiles) > 0 {
		t.Errorf("got file %+v, selectors %q and profiles %q, want none", p.File, p.Selectors, p.Profiles)
	}
	for _, v := range p.Variables {
		if v.Name == "AWS_CONFIG_FILE" {
			t.Errorf("got %+v, want no such variable", v)
		}
	}
}

func TestPrincipalsAreThoseOfTheProfilesToo(t *testing.T) {
	t.Parallel()
	account := annotations.ServiceAccount{Identities: []annotations.Identity{withProfiles(twoProfiles()...)}}
	if diff := cmp.Diff([]string{roleARN, auditARN, backupARN}, account.Principals()); diff != "" {
		t.Errorf("principals (-want +got):\n%s", diff)
	}
}

// configLine matches every line of a config file that an AWS SDK reads as it was meant:
// one section or one setting, without a space or a quote in a value.
var configLine = regexp.MustCompile(`^(\[default\]|\[profile [A-Za-z0-9._-]+\]|(role_arn|web_identity_token_file|source_profile|role_session_name|region) = [^\s"'][^\s]*)$`)

// checkConfig checks that a config file contains exactly one section with a role for each
// profile.
func checkConfig(tb testing.TB, content string, aws *annotations.Identity) {
	tb.Helper()
	var sections, roles []string
	for line := range strings.Lines(content) {
		line = strings.TrimSuffix(line, "\n")
		if !configLine.MatchString(line) {
			tb.Errorf("config file has the line %q", line)
		}
		if name, found := strings.CutPrefix(line, "["); found {
			sections = append(sections, strings.TrimPrefix(strings.TrimSuffix(name, "]"), "profile "))
		}
		if role, found := strings.CutPrefix(line, "role_arn = "); found {
			roles = append(roles, role)
		}
	}
	names := []string{annotations.DefaultProfile}
	for _, p := range aws.Profiles {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff(names, sections); diff != "" {
		tb.Errorf("sections (-want +got):\n%s", diff)
	}
	account := annotations.ServiceAccount{Identities: []annotations.Identity{*aws}}
	if diff := cmp.Diff(account.Principals(), roles); diff != "" {
		tb.Errorf("roles (-want +got):\n%s", diff)
	}
}
