// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestParseNamespace(t *testing.T) {
	t.Parallel()
	const key = "lanyard.dev/allowed-identities"
	tests := map[string]struct {
		annotations map[string]string
		defaults    []string // of the cluster
		want        annotations.Policy
		errs        []string
	}{
		"no annotations allow everything":               {},
		"another domain's annotations are not a policy": {annotations: map[string]string{"example.com/allowed-identities": "x"}},
		"one glob":             {annotations: map[string]string{key: "*"}, want: annotations.Policy{Allowed: []string{"*"}}},
		"globs in their order": {annotations: map[string]string{key: "b,a"}, want: annotations.Policy{Allowed: []string{"b", "a"}}},
		"spaces and line breaks around the commas are not part of a glob": {
			annotations: map[string]string{key: " a ,\n b "}, want: annotations.Policy{Allowed: []string{"a", "b"}},
		},
		"an empty list is a mistake, not a policy": {
			annotations: map[string]string{key: ""},
			errs:        []string{`metadata.annotations[lanyard.dev/allowed-identities]: Invalid value: "": must be a list separated by commas, without an empty element`},
		},
		"an empty element is a mistake": {
			annotations: map[string]string{key: "a,,b"},
			errs:        []string{`metadata.annotations[lanyard.dev/allowed-identities]: Invalid value: "a,,b": must be a list separated by commas, without an empty element`},
		},
		"a comma at the end is a mistake": {
			annotations: map[string]string{key: "a,"},
			errs:        []string{`metadata.annotations[lanyard.dev/allowed-identities]: Invalid value: "a,": must be a list separated by commas, without an empty element`},
		},
		"a dash allows nothing": {annotations: map[string]string{key: "-"}, want: annotations.Policy{Allowed: []string{}}},
		"the namespace's variable is only for the cluster's default": {
			annotations: map[string]string{key: "{namespace}"}, want: annotations.Policy{Allowed: []string{"{namespace}"}},
		},
		"without the annotation the cluster's default applies": {
			defaults: []string{"arn:*:role/{namespace}-*", "{namespace}.{namespace}"},
			want:     annotations.Policy{Allowed: []string{"arn:*:role/team-*", "team.team"}, FromDefault: true},
		},
		"the cluster's default may allow nothing": {
			defaults: []string{}, want: annotations.Policy{Allowed: []string{}, FromDefault: true},
		},
		"the annotation overrides the cluster's default": {
			annotations: map[string]string{key: "*"}, defaults: []string{}, want: annotations.Policy{Allowed: []string{"*"}},
		},
		"a malformed annotation does not fall back to the cluster's default": {
			annotations: map[string]string{key: ""}, defaults: []string{"*"},
			errs: []string{`metadata.annotations[lanyard.dev/allowed-identities]: Invalid value: "": must be a list separated by commas, without an empty element`},
		},
		"a misspelled key is a mistake": {
			annotations: map[string]string{"lanyard.dev/allowed-identity": "a"},
			errs:        []string{`metadata.annotations[lanyard.dev/allowed-identity]: Forbidden: has value "a" and is not an annotation of a Namespace; the nearest key is lanyard.dev/allowed-identities; known keys are lanyard.dev/allowed-identities`},
		},
		"every mistake is reported, in the order of the keys": {
			annotations: map[string]string{"lanyard.dev/b": "2", "lanyard.dev/a": "1", key: "x"},
			want:        annotations.Policy{Allowed: []string{"x"}},
			errs: []string{
				`metadata.annotations[lanyard.dev/a]: Forbidden: has value "1" and is not an annotation of a Namespace; known keys are lanyard.dev/allowed-identities`,
				`metadata.annotations[lanyard.dev/b]: Forbidden: has value "2" and is not an annotation of a Namespace`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSettings(t)
			s.AllowedIdentities = tt.defaults
			policy, errs := s.ParseNamespace("team", tt.annotations)
			if diff := cmp.Diff(tt.errs, messages(errs)); diff != "" {
				t.Fatalf("errors (-want +got):\n%s", diff)
			}
			if len(errs) > 0 {
				return
			}
			if diff := cmp.Diff(tt.want, policy); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseDefaultAllowedIdentities(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		value string
		want  []string
		err   string
	}{
		"one glob":                   {"*", []string{"*"}, ""},
		"globs and spaces":           {" a , b", []string{"a", "b"}, ""},
		"the namespace's name":       {"arn:*:role/{namespace}-*", []string{"arn:*:role/{namespace}-*"}, ""},
		"a GUID in capitals":         {"AAAAAAAA-0000-0000-0000-000000000000", []string{"aaaaaaaa-0000-0000-0000-000000000000"}, ""},
		"the start of a GUID":        {"ABCDEF01-*", []string{"abcdef01-*"}, ""},
		"the start and end of one":   {"ABCDEF01-*-00000000000F", []string{"abcdef01-*-00000000000f"}, ""},
		"too short for a GUID":       {"ABCDEF0-*", []string{"ABCDEF0-*"}, ""},
		"a name in capitals":         {"arn:aws:iam::*:role/ABCDEF01-*", []string{"arn:aws:iam::*:role/ABCDEF01-*"}, ""},
		"a dash allows nothing":      {"-", []string{}, ""},
		"a dash in a list is a glob": {"-,a", []string{"-", "a"}, ""},
		"an empty list":              {"", []string{}, "must be a list separated by commas, without an empty element"},
		"an empty element":           {"a,,b", []string{}, "must be a list separated by commas, without an empty element"},
		"another variable":           {"{ns}-*", []string{}, "must have no braces except in {namespace}"},
		"a variable in capitals":     {"{Namespace}", []string{}, "must have no braces except in {namespace}"},
		"a brace that is not closed": {"{namespace", []string{}, "must have no braces except in {namespace}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := annotations.ParseDefaultAllowedIdentities(tt.value)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("globs (-want +got):\n%s", diff)
			}
			if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestPolicyDenies(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:iam::111122223333:role/team/logs"
	tests := map[string]struct {
		allowed []string
		names   []string
		want    string // what is denied
	}{
		"without a policy nothing is denied":            {nil, []string{arn}, ""},
		"a policy without globs denies everything":      {[]string{}, []string{arn}, arn},
		"a name allows itself":                          {[]string{arn}, []string{arn}, ""},
		"a name that is only the beginning is denied":   {[]string{arn}, []string{arn + "x"}, arn + "x"},
		"a name that is only the end is denied":         {[]string{"logs"}, []string{arn}, arn},
		"a single star allows all":                      {[]string{"*"}, []string{arn}, ""},
		"a star also stands for no character":           {[]string{arn + "*"}, []string{arn}, ""},
		"a star stands for slashes":                     {[]string{"arn:aws:iam::111122223333:*"}, []string{arn}, ""},
		"a star in the middle":                          {[]string{"arn:*:role/*/logs"}, []string{arn}, ""},
		"a star at the front":                           {[]string{"*/logs"}, []string{arn}, ""},
		"what is after the star counts":                 {[]string{"arn:aws:iam::*:role/team/metrics"}, []string{arn}, arn},
		"what is before the star counts":                {[]string{"x*"}, []string{arn}, arn},
		"what is between two stars counts":              {[]string{"arn:*metrics*"}, []string{arn}, arn},
		"the end must come after the beginning":         {[]string{"ab*ba"}, []string{"aba"}, "aba"},
		"the end must come after the middle":            {[]string{"a*b*b"}, []string{"ab"}, "ab"},
		"the middle must come after the beginning":      {[]string{"ab*b*"}, []string{"ab"}, "ab"},
		"parts are found only in their order":           {[]string{"*b*a*"}, []string{"ab"}, "ab"},
		"the end is looked for at the end":              {[]string{"a*c"}, []string{"abcac"}, ""},
		"several stars are one":                         {[]string{"a**c"}, []string{"abc"}, ""},
		"a dot is a dot":                                {[]string{"a.c"}, []string{"abc"}, "abc"},
		"a question mark is a question mark":            {[]string{"a?c"}, []string{"abc"}, "abc"},
		"brackets are brackets":                         {[]string{"a[b]c"}, []string{"abc"}, "abc"},
		"brackets stand for themselves":                 {[]string{"a[b]*"}, []string{"a[b]c"}, ""},
		"a backslash does not escape a star":            {[]string{`a\*`}, []string{`a\b`}, ""},
		"case counts":                                   {[]string{"A*"}, []string{"abc"}, "abc"},
		"one glob of several is enough":                 {[]string{"x", "a*", "y"}, []string{"abc"}, ""},
		"every name must be allowed":                    {[]string{"a*"}, []string{"abc", "bcd", "cde"}, "bcd"},
		"a ServiceAccount without a name is not denied": {[]string{}, nil, ""},
		"a longer glob than the name":                   {[]string{"abc*"}, []string{"ab"}, "ab"},
		"one account number does not allow another":     {[]string{"arn:aws:iam::111122223333:role/*"}, []string{"arn:aws:iam::999922223333:role/x"}, "arn:aws:iam::999922223333:role/x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := annotations.Policy{Allowed: tt.allowed}
			got, found := policy.Denied(tt.names)
			if got != tt.want || found != (tt.want != "") {
				t.Errorf("globs %q, names %q: got %q, %t, want %q", tt.allowed, tt.names, got, found, tt.want)
			}
		})
	}
}

// Administrators write the globs of a namespace, and its users write the names. Neither
// may slow down the webhook.
func TestPolicyIsFastWithManyStars(t *testing.T) {
	t.Parallel()
	glob, name := strings.Repeat("*a", 10_000)+"b", strings.Repeat("a", 100_000)
	policy := annotations.Policy{Allowed: []string{glob}}
	done := make(chan bool, 1)
	go func() {
		_, found := policy.Denied([]string{name})
		done <- found
	}()
	select {
	case denied := <-done:
		if !denied {
			t.Error("a name that does not match was allowed")
		}
	case <-time.After(time.Minute):
		t.Error("no answer for a glob of 10,000 stars")
	}
}
