// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// grammar tests the values of one annotation. Accepted values have one spelling. The grammars
// of the providers' parameters are in package provider.
type grammar struct {
	parse            func(string) (string, error)
	accepted, denied map[string]string
	message          string
}

// audience reads an audience of at most limit characters.
func audience(limit int) func(string) (string, error) {
	return func(value string) (string, error) {
		return annotations.ParseAudience(value, limit, []string{"https://kubernetes.default.svc", "internal"})
	}
}

// lifetime reads a lifetime of at least least seconds.
func lifetime(least int64) func(string) (string, error) {
	return func(value string) (string, error) {
		seconds, err := annotations.ParseTokenExpirationSeconds(value, least)
		if err != nil {
			return "", err
		}
		return strconv.FormatInt(seconds, 10), nil
	}
}

var grammars = map[string]grammar{
	"an audience": {
		parse: audience(1024),
		accepted: map[string]string{
			"one character":                 "a",
			"1024 characters":               strings.Repeat("a", 1024),
			"a URL":                         "https://vault.example.com:8200/v1?x=y#z",
			"every visible ASCII character": visible(),
			"one that only begins like the API server's": "https://kubernetes.default.svc.example.com",
			"a reserved one in another case":             "Internal",
		},
		denied: map[string]string{
			"nothing":                    "",
			"1025 characters":            strings.Repeat("a", 1025),
			"a space":                    "a b",
			"a tab":                      "a\tb",
			"a line break":               "a\n",
			"a NUL":                      "a\x00",
			"a DEL":                      "a\x7f",
			"a letter that is not ASCII": "é",
			"a broken encoding":          "a\xff",
		},
		message: "must be 1 to 1024 visible ASCII characters without a space",
	},
	"a reserved audience": {
		parse: audience(1024),
		denied: map[string]string{
			"the first of the API server's": "https://kubernetes.default.svc",
			"the last of the API server's":  "internal",
		},
		message: "is an audience of the Kubernetes API server; a token with it would give its receiver access to the cluster",
	},
	"a token's lifetime": {
		parse: lifetime(0),
		accepted: map[string]string{
			"the shortest": "600",
			"the default":  "3600",
			"the longest":  "86400",
		},
		denied: map[string]string{
			"nothing":                  "",
			"one second too short":     "599",
			"one second too long":      "86401",
			"zero":                     "0",
			"a negative number":        "-3600",
			"a plus sign":              "+3600",
			"a zero in front":          "03600",
			"a space":                  " 3600",
			"a line break":             "3600\n",
			"a fraction":               "3600.5",
			"an exponent":              "36e2",
			"an underscore":            "3_600",
			"a base":                   "0xe10",
			"a duration":               "1h",
			"more than fits 64 bits":   "9223372036854775808",
			"digits of another script": "３６００",
			"the longest of an int64":  strconv.FormatInt(math.MaxInt64, 10),
			"the smallest of an int64": strconv.FormatInt(math.MinInt64, 10),
		},
		message: "must be a whole number of seconds from 600 to 86400",
	},
	"a token's lifetime for a provider that needs an hour": {
		parse:    lifetime(3600),
		accepted: map[string]string{"the shortest": "3600", "the longest": "86400"},
		denied:   map[string]string{"nothing": "", "one second too short": "3599", "one second too long": "86401", "a duration": "1h"},
		message:  "must be a whole number of seconds from 3600 to 86400: SDKs of a provider of this ServiceAccount cannot use shorter ones",
	},
	"a short audience": {
		parse:    audience(3),
		accepted: map[string]string{"the longest": "abc"},
		denied:   map[string]string{"one character too long": "abcd"},
		message:  "must be 1 to 3 visible ASCII characters without a space",
	},
}

// visible returns all of visible ASCII.
func visible() string {
	var b strings.Builder
	for c := byte('!'); c <= '~'; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

func TestGrammars(t *testing.T) {
	t.Parallel()
	for name, grammar := range grammars {
		for sentence, value := range grammar.accepted {
			t.Run(name+" may be "+sentence, func(t *testing.T) {
				t.Parallel()
				if got, err := grammar.parse(value); err != nil || got != value {
					t.Errorf("%q: got %q and error %v, want it unchanged", value, got, err)
				}
			})
		}
		for sentence, value := range grammar.denied {
			t.Run(name+" must not be "+sentence, func(t *testing.T) {
				t.Parallel()
				got, err := grammar.parse(value)
				if err == nil {
					t.Fatalf("%q: got %q, want an error", value, got)
				}
				if got != "" {
					t.Errorf("%q: got %q in addition to the error", value, got)
				}
				if err.Error() != grammar.message {
					t.Errorf("message:\n got %s\nwant %s", err, grammar.message)
				}
			})
		}
	}
}

func TestValidateTokenExpirationSeconds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		seconds, least int64
		valid          bool
	}{
		"the shortest":                          {600, 0, true},
		"the longest":                           {86400, 0, true},
		"one second too short":                  {599, 0, false},
		"one second too long":                   {86401, 0, false},
		"zero":                                  {0, 0, false},
		"a negative number":                     {-3600, 0, false},
		"the most negative":                     {math.MinInt64, 0, false},
		"the largest":                           {math.MaxInt64, 0, false},
		"the shortest of a provider":            {3600, 3600, true},
		"one second too short for a provider":   {3599, 3600, false},
		"a provider does not lower the minimum": {599, 1, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := annotations.ValidateTokenExpirationSeconds(tt.seconds, tt.least); (err == nil) != tt.valid {
				t.Errorf("%d with a minimum of %d: got error %v, want valid %t", tt.seconds, tt.least, err, tt.valid)
			}
		})
	}
}
