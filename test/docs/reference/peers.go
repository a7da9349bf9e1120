// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
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
