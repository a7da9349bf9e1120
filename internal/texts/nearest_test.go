// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package texts_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"aws-role-arn", "aws-region", "audience", "azure-client-id", "token"}
	for mistyped, want := range map[string]string{
		"aws-roel-arn":            "aws-role-arn", // exchanged
		"aws-rolearn":             "aws-role-arn", // left out
		"aws-role-arns":           "aws-role-arn", // added
		"AWS-role-arn":            "aws-role-arn",
		"role-arn":                "aws-role-arn", // half of it
		"aws-regoin":              "aws-region",
		"tokn":                    "token",
		"tokens":                  "token",
		"t":                       "",
		"":                        "",
		"x":                       "",
		"unknown":                 "",
		"gcp-project":             "",
		strings.Repeat("x", 9999): "",
	} {
		if got := texts.Nearest(mistyped, names); got != want {
			t.Errorf("%q: got %q, want %q", mistyped, got, want)
		}
	}
	if got := texts.Nearest("name", nil); got != "" {
		t.Errorf("no names: got %q, want none", got)
	}
	if got := texts.Nearest("mai", []string{"maik", "main"}); got != "maik" {
		t.Errorf("two names: got %q, want the first", got)
	}
}
