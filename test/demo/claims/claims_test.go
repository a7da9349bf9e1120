// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	good := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:demo:app"}`))
	tests := map[string]struct{ token, wantErr string }{
		"the claims are the second part":             {token: "header." + good + ".signature"},
		"a string without dots is denied":            {"secret", "1 parts"},
		"a part that is not base64 is denied":        {"secret.secret!.secret", "decode the token's claims"},
		"a part that is not a JSON object is denied": {"secret.c2VjcmV0.secret", "decode the token's claims"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Read(test.token)
			if test.wantErr == "" {
				if err != nil || c.Subject != "system:serviceaccount:demo:app" {
					t.Errorf("got claims %+v and error %v, want the claims of the token", c, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.wantErr) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got error %v, want an error with %q and without the token", err, test.wantErr)
			}
		})
	}
}
