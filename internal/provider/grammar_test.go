// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
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

// parameter returns the parameter with this annotation key, without the prefix.
func parameter(t *testing.T, key string) *annotations.Parameter {
	t.Helper()
	for _, d := range Builtin() {
		for i := range d.Parameters {
			if d.Key(d.Parameters[i].Name) == key {
				return &d.Parameters[i]
			}
		}
	}
	t.Fatalf("no provider has the parameter %s", key)
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
	p := parameter(t, name)
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
