// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/cases"
)

// grammar is the grammar of the values of some parameters.
type grammar struct {
	Parameters []string          `json:"parameters"` // with the names of the providers
	Accepted   map[string]string `json:"accepted"`
	Respelled  map[string]struct {
		Value string `json:"value"`
		Want  string `json:"want"`
	} `json:"respelled"`
	Denied  map[string]string `json:"denied"`
	Message string            `json:"message"`
}

// parameter returns the parameter of a definition.
func parameter(t *testing.T, provider, name string) *Parameter {
	t.Helper()
	for _, d := range Builtin() {
		for i := range d.Parameters {
			if d.Name == provider && d.Parameters[i].Name == name {
				return &d.Parameters[i]
			}
		}
	}
	t.Fatalf("%s has no parameter %s", provider, name)
	return nil
}

func TestParametersHaveAGrammar(t *testing.T) {
	t.Parallel()
	tables := map[string]bool{}
	for name, g := range cases.Read[grammar](t, "grammar.yaml") {
		for _, parameter := range g.Parameters {
			tables[parameter] = true
			t.Run(name+" as "+parameter, func(t *testing.T) {
				t.Parallel()
				g.check(t, parameter)
			})
		}
	}
	for _, d := range Builtin() {
		for i := range d.Parameters {
			if name := d.Key(d.Parameters[i].Name); !tables[name] {
				t.Errorf("%s: no table of accepted and denied values", name)
			}
		}
	}
}

// check checks that the parameter has this grammar.
func (g *grammar) check(t *testing.T, name string) {
	provider, name, _ := strings.Cut(name, "-")
	p := parameter(t, provider, name)
	accepts := func(sentence, value, want string) {
		got, err := p.Read(value)
		if err != nil || got != want {
			t.Errorf("%s: %q: got %q and error %v, want %q", sentence, value, got, err, want)
		}
		if again, err := p.Read(got); err != nil || again != got {
			t.Errorf("%s: %q: reading the result again: got %q and error %v", sentence, value, again, err)
		}
	}
	for sentence, value := range g.Accepted {
		accepts(sentence, cases.Expand(value), cases.Expand(value))
	}
	for sentence, value := range g.Respelled {
		accepts(sentence, value.Value, value.Want)
	}
	for sentence, value := range g.Denied {
		value = cases.Expand(value)
		want := g.Message
		if len(value) > p.MaxBytes {
			want = fmt.Sprintf("must have at most %d bytes", p.MaxBytes)
		}
		if got, err := p.Read(value); err == nil || got != "" || err.Error() != want {
			t.Errorf("%s: %q: got %q and error %v, want error %s", sentence, value, got, err, want)
		}
	}
}

func TestProjectOfAServiceAccount(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ email, project string }{
		"a user's own service account has its project in the e-mail": {"reader@my-project.iam.gserviceaccount.com", "my-project"},
		"a domain comes before its project":                          {"reader@my-project.example.com.iam.gserviceaccount.com", "example.com:my-project"},
		"App Engine's service account is named after the project":    {"my-project@appspot.gserviceaccount.com", "my-project"},
		"Compute Engine's e-mail has a number, which is not an ID":   {"123456789012-compute@developer.gserviceaccount.com", ""},
		"direct federation has no service account":                   {"", ""},
	}
	project := parameter(t, "gcp", "project")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := GCPProjectOf(tt.email)
			if got != tt.project {
				t.Errorf("%s: got project %q, want %q", tt.email, got, tt.project)
			}
			if got == "" {
				return
			}
			if _, err := project.Read(got); err != nil {
				t.Errorf("%s: its project %q is not accepted as an annotation: %v", tt.email, got, err)
			}
		})
	}
}
