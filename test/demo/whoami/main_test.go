// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	t.Parallel()
	token := "header." + base64.RawURLEncoding.EncodeToString([]byte(
		`{"sub":"system:serviceaccount:demo:app","aud":["vault"],"kubernetes.io":{"pod":{"name":"p"}}}`)) + ".signature"
	tests := map[string]struct {
		environment []string
		files       fstest.MapFS
		want        string
		wantErr     string
	}{
		"the variables of the clouds are sorted, and others are left out": {
			environment: []string{"PATH=/", "LANYARD_TOKEN_FILE=/t", "HOME=/", "AWS_REGION=r", "LANYARD_WEBHOOK_PORT=1"},
			files:       fstest.MapFS{"token": {Data: []byte(token)}},
			want:        "AWS_REGION=r\nLANYARD_TOKEN_FILE=/t\ntoken token: sub system:serviceaccount:demo:app, aud vault, pod p\n",
		},
		"without tokens it says so": {
			want: "no token: the ServiceAccount has no annotation of Lanyard\n",
		},
		"a file that is not a token is an error": {
			files:   fstest.MapFS{"aws/token": {Data: []byte("secret")}},
			wantErr: "aws/token: got a token with 1 parts, want 3",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := run(&out, test.environment, test.files)
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if got := errorText(err); got != test.wantErr {
				t.Errorf("got error %q, want %q", got, test.wantErr)
			}
			if strings.Contains(out.String(), "signature") {
				t.Error("the token was printed")
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
