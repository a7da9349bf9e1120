// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// If a template contains both names, different ServiceAccounts never get the same value.
func TestReadTemplateKeepsServiceAccountsApart(t *testing.T) {
	t.Parallel()
	p := annotations.Parameter{MaxBytes: 128, Parse: func(value string) (string, error) { return value, nil }}
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
				value := annotations.ExpandNames(template, account[0], account[1])
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
	p := annotations.Parameter{MaxBytes: 16, Parse: func(value string) (string, error) { return value, nil }}
	if got, err := p.ReadTemplate("/{namespace}/" + strings.Repeat("x", 16)); err == nil {
		t.Errorf("got %q and no error", got)
	}
}

func TestValuesOverMaxBytesAreDenied(t *testing.T) {
	t.Parallel()
	anything := func(value string) (string, error) { return value, nil }
	p := annotations.Parameter{MaxBytes: 3, Parse: anything}
	if value, err := p.Read("abc"); err != nil || value != "abc" {
		t.Errorf("3 bytes: got %q and error %v, want abc", value, err)
	}
	value, err := p.Read("abcd")
	if want := "must have at most 3 bytes"; err == nil || err.Error() != want || value != "" {
		t.Errorf("4 bytes: got %q and error %v, want %s", value, err, want)
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	values := annotations.Values{"a": "1", "b-c": "2", "empty": "", "braces": "{a}"}
	tests := map[string]struct {
		template, want string
		incomplete     bool
	}{
		"text without a placeholder stays":   {template: "regional", want: "regional"},
		"each placeholder becomes its value": {template: "{a}/{b-c}/{a}", want: "1/2/1"},
		"a value is not expanded again":      {template: "{braces}", want: "{a}"},
		"an empty value is reported":         {template: "x{empty}", want: "x", incomplete: true},
		"an unknown value is reported":       {template: "{other}{a}", want: "1", incomplete: true},
		"no template, no text":               {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, complete := values.Expand(tt.template)
			if got != tt.want || complete == tt.incomplete {
				t.Errorf("%q: got %q and complete %t, want %q and %t", tt.template, got, complete, tt.want, !tt.incomplete)
			}
		})
	}
}

func TestPrincipalsAreTheAllowedParametersToo(t *testing.T) {
	t.Parallel()
	d := &annotations.Provider{Name: "x", PrincipalParameters: []string{"role"}, Parameters: []annotations.Parameter{
		{Name: "role", Required: true}, {Name: "region"}, {Name: "project", Allowed: true}, {Name: "team", Allowed: true},
	}}
	account := annotations.ServiceAccount{Identities: []annotations.Identity{{Provider: d, Values: annotations.Values{"role": "r", "region": "eu", "project": "p"}}}}
	if diff := cmp.Diff([]string{"r", "p"}, account.Principals()); diff != "" {
		t.Errorf("principals (-want +got):\n%s", diff)
	}
}
