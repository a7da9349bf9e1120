// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package exchange_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/exchange"
)

func encode(header, claims string) string {
	b := base64.RawURLEncoding
	return b.EncodeToString([]byte(header)) + "." + b.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl"
}

const (
	header = `{"alg":"RS256","kid":"key-1"}`
	rest   = `"iss":"https://issuer.example.com","sub":"system:serviceaccount:shop:cart","iat":1700000000,"exp":1700003600}`
)

func TestParse(t *testing.T) {
	t.Parallel()
	want := &exchange.Claims{
		KeyID: "key-1", Algorithm: "RS256", Issuer: "https://issuer.example.com", Subject: "system:serviceaccount:shop:cart",
		Audience: []string{"sts.amazonaws.com"},
		IssuedAt: time.Date(2023, 11, 14, 22, 13, 20, 0, time.UTC), Expires: time.Date(2023, 11, 14, 23, 13, 20, 0, time.UTC),
	}
	tests := map[string]string{
		"a list of audiences":       encode(header, `{"aud":["sts.amazonaws.com"],`+rest),
		"an audience":               encode(header, `{"aud":"sts.amazonaws.com",`+rest),
		"a newline after the token": encode(header, `{"aud":"sts.amazonaws.com",`+rest) + "\n",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := exchange.ParseToken(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrorsDoNotContainTheToken(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"no token":             {"", "got 1 parts, want the 3"},
		"an opaque token":      {"secret-token", "got 1 parts, want the 3"},
		"a header of no JSON":  {encode("secret", `{}`), "the header is malformed"},
		"claims of no JSON":    {encode(header, `secret`), "the claims are malformed"},
		"claims of no base64":  {"e30.secret!.x", "the claims are malformed"},
		"an audience of a map": {encode(header, `{"aud":{"secret":1}}`), "the claims are malformed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := exchange.ParseToken(test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got error %v, want it to contain %q, and nothing of the token", err, test.want)
			}
		})
	}
}
