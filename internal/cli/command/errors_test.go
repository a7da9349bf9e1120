// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		code int
		text string
	}{
		"no error":                {nil, 0, ""},
		"a finding":               {ErrFound, 1, ""},
		"a finding in an error":   {fmt.Errorf("x: %w", ErrFound), 1, ""},
		"an error":                {errors.New("no route"), 2, "error: no route\n"},
		"a mistake in the flags":  {Usagef("--x is missing"), 2, "error: --x is missing\nSee 'lanyard check --help' for usage.\n"},
		"a finding and no error":  {FoundIf(true, nil), 1, ""},
		"a finding with an error": {FoundIf(true, errors.New("no route")), 2, "error: no route\n"},
		"no finding and no error": {FoundIf(false, nil), 0, ""},
		"a missing right": {
			fmt.Errorf("list pods: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "a" cannot list resource "pods" in API group "" in the namespace "shop"`))), 2,
			"error: list pods: pods is forbidden: User \"a\" cannot list resource \"pods\" in API group \"\" in the namespace \"shop\"\nAsk an administrator to bind the ClusterRole \"view\" to you in the namespace shop.\n",
		},
		"a missing right to write": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "a" cannot patch resource "pods" in API group "" in the namespace "shop"`)), 2,
			"error: pods is forbidden: User \"a\" cannot patch resource \"pods\" in API group \"\" in the namespace \"shop\"\n",
		},
		"an error with a long text": {errors.New("first\nsecond"), 2, "error: first\n  second\n"},
	} {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		c := NewCLI("lanyard", streams)
		c.Started = true
		if code := c.Exit(test.err, "lanyard check"); code != test.code || errOut.String() != test.text {
			t.Errorf("%s: got %d and %q, want %d and %q", name, code, errOut, test.code, test.text)
		}
	}
}
