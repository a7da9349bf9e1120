// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"strings"
	"testing"
)

// Two ServiceAccounts with different names never have the same value, if the
// template has both names.
func TestReadTemplateKeepsServiceAccountsApart(t *testing.T) {
	t.Parallel()
	p := Parameter{MaxBytes: 128, Parse: func(value string) (string, error) { return value, nil }}
	accounts := [][2]string{{"a", "b"}, {"a-b", "c"}, {"a", "b-c"}, {"a", "b.c"}, {"b", "c.a"}, {"b-c", "a"}, {"c", "a.b"}, {"c", "a-b"}, {"b", "a"}, {"a-a", "a"}, {"a", "a-a"}}
	for template, accepted := range map[string]bool{
		"{namespace}/{serviceaccount}":      true,
		"{serviceaccount}/{namespace}":      true,
		"{namespace}_x-{serviceaccount}":    true,
		"{namespace}.{serviceaccount}":      true,
		"{serviceaccount}.{namespace}":      true,
		"{serviceaccount}@{namespace}-x":    true,
		"{namespace}{serviceaccount}":       false,
		"{namespace}-{serviceaccount}":      false,
		"{serviceaccount}-{namespace}":      false,
		"x/{namespace}-a1-{serviceaccount}": false,
	} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			got, err := p.ReadTemplate(template)
			if (err == nil) != accepted || accepted && got != template {
				t.Fatalf("got %q and error %v, want it accepted %t", got, err, accepted)
			}
			values := map[string][2]string{}
			for _, account := range accounts {
				value := ExpandNames(template, account[0], account[1])
				if other, found := values[value]; found && accepted {
					t.Errorf("%q and %q both have %q", account, other, value)
				}
				values[value] = account
			}
		})
	}
}

func TestReadTemplateDeniesAValueThatIsTooLong(t *testing.T) {
	t.Parallel()
	p := Parameter{MaxBytes: 16, Parse: func(value string) (string, error) { return value, nil }}
	if got, err := p.ReadTemplate("/{namespace}/" + strings.Repeat("x", 16)); err == nil {
		t.Errorf("got %q and no error", got)
	}
}

// The project of the service account is more exact than the cluster's.
func TestTheProjectComesFromTheMostExactSource(t *testing.T) {
	t.Parallel()
	const email = "reader@my-project.iam.gserviceaccount.com"
	for sentence, tt := range map[string]struct {
		values Values
		want   string
	}{
		"the annotation before all others":           {Values{"project": "annotated", "service-account": email, "default-project": "default"}, "annotated"},
		"the service account before the default":     {Values{"service-account": email, "default-project": "default"}, "my-project"},
		"the default for direct federation":          {Values{"default-project": "default"}, "default"},
		"the default for a number in place of an ID": {Values{"service-account": "1-compute@developer.gserviceaccount.com", "default-project": "default"}, "default"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			gcp().Derive(tt.values)
			if got := tt.values["project"]; got != tt.want {
				t.Errorf("got project %q, want %q", got, tt.want)
			}
		})
	}
}
