// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// answer is a credential with a constant result.
type answer struct {
	token string
	err   error
}

// GetToken returns the result if the scope is Azure Monitor's.
func (a answer) GetToken(_ context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if len(options.Scopes) != 1 || options.Scopes[0] != "https://monitor.azure.com/.default" {
		return azcore.AccessToken{}, errors.New("unexpected scope, want Azure Monitor's")
	}
	return azcore.AccessToken{Token: a.token}, a.err
}

func TestGetToken(t *testing.T) {
	gives := func(token string, err error) func() (azcore.TokenCredential, error) {
		return func() (azcore.TokenCredential, error) { return answer{token, err}, nil }
	}
	cannotBeOpened := func() (azcore.TokenCredential, error) { return nil, errors.New("no token file") }

	cases := map[string]struct {
		first, second func() (azcore.TokenCredential, error)
		token, method string
		errors        []string
	}{
		"the first, even if the second would succeed": {gives("1", nil), gives("2", nil), "1", "first", nil},
		"the second if the first is refused":          {gives("", &azidentity.AuthenticationFailedError{}), gives("2", nil), "2", "second", nil},
		"the second if the first has no token file":   {gives("", errors.New("no such file")), gives("2", nil), "2", "second", nil},
		"the second if the first lacks its settings":  {cannotBeOpened, gives("2", nil), "2", "second", nil},
		"the second if the first is unavailable":      {gives("", azidentity.NewCredentialUnavailableError("no")), gives("2", nil), "2", "second", nil},
		"none if both are refused, with both errors":  {gives("", errors.New("refused one")), gives("", errors.New("refused two")), "", "", []string{"first: refused one", "second: refused two"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := getToken(t.Context(), []method{{"first", c.first}, {"second", c.second}})
			if (err != nil) != (c.errors != nil) {
				t.Fatalf("got error %v, want one with %q", err, c.errors)
			}
			for _, text := range c.errors {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("got error %q, want it to contain %q", err, text)
				}
			}
			if got.Secret != c.token || got.Method != c.method {
				t.Errorf("got token %q by %q, want %q by %q", got.Secret, got.Method, c.token, c.method)
			}
		})
	}
}
