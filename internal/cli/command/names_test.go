// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"pod web-0":            "pod/web-0",
		"po/web-0":             "pod/web-0",
		"deploy web":           "deployment/web",
		"Deployment.apps/web":  "deployment/web",
		"sa cart":              "serviceaccount/cart",
		"serviceaccounts/cart": "serviceaccount/cart",
		"cronjob/x":            "cronjob/x",
	} {
		got, err := ParseReference(strings.Fields(args))
		if err != nil || got.String() != want {
			t.Errorf("%s: got %v and %v, want %s", args, got, err, want)
		}
	}
	for args, want := range map[string]string{
		"":            "0 arguments are not TYPE/NAME or TYPE NAME",
		"pod":         `"pod" is not TYPE/NAME or TYPE NAME`,
		"a b c":       "3 arguments are not TYPE/NAME or TYPE NAME",
		"pod/":        `type "pod" and name "" are not TYPE/NAME or TYPE NAME`,
		"/x":          `type "" and name "x" are not TYPE/NAME or TYPE NAME`,
		"pod/a/b":     `"pod/a/b" is not TYPE/NAME or TYPE NAME`,
		"service web": `type "service": name a serviceaccount, pod or a workload such as deployment`,
	} {
		if got, err := ParseReference(strings.Fields(args)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v and %v, want %s", args, got, err, want)
		}
	}
}

func TestReferencesOfSomeKinds(t *testing.T) {
	t.Parallel()
	if got, err := ParseReference([]string{"sa/x"}, ServiceAccountKind); err != nil || !got.IsServiceAccount() {
		t.Errorf("got %v and %v", got, err)
	}
	if got, err := ParseReference([]string{"pod/x"}, ServiceAccountKind); err == nil || err.Error() != `type "pod": this command is for serviceaccount` {
		t.Errorf("got %v and %v", got, err)
	}
}
