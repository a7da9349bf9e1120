// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"cmp"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/peer"
)

// inputsOf returns the section with everything that a peer reads.
func inputsOf(name string) func() (string, error) {
	return func() (string, error) {
		peers, err := peer.Named([]string{name})
		if err != nil {
			return "", err
		}
		t := newTable("Where", "What", "Result", "Becomes", "Notes")
		for i := range peers[0].Inputs {
			in := &peers[0].Inputs[i]
			key, becomes := in.Key, in.Becomes
			if in.Place != peer.ByProgram {
				key = code(key)
			}
			if becomes != "" && in.SettingOf() == "" {
				becomes = annotations.DefaultPrefix + becomes
			}
			if becomes != "" {
				becomes = code(becomes)
			}
			t.row(string(in.Place), key, string(in.Result), becomes, in.Note)
		}
		return t.String(), nil
	}
}

// orders returns what happens while Lanyard and a peer run.
func orders() (string, error) {
	t := newTable("Program", "Version", "Called", "reinvocationPolicy", "What happens")
	for _, p := range peer.All() {
		for _, o := range p.Orders {
			policy := cmp.Or(o.Reinvocation, "any")
			switch policy {
			case "any":
				policy = "any; by default " + code(p.Reinvocation)
			case p.Reinvocation:
				policy = code(policy) + ", the default"
			default:
				policy = code(policy)
			}
			t.row(p.Program, p.Version, o.Called+" Lanyard", policy, o.Note)
		}
	}
	return t.String(), nil
}
