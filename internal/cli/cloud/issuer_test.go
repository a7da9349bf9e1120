// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
)

const (
	keyA       = `{"kty":"RSA","alg":"RS256","use":"sig","kid":"a","n":"AAAA","e":"AQAB"}`
	keyAElse   = `{"kty":"RSA","alg":"RS256","use":"sig","kid":"a","n":"BBBB","e":"AQAB"}`
	hostileKey = `{"kty":"RSA","alg":"RS256","use":"sig","kid":"$(x)","n":"BBBB","e":"AQAB"}`
	// The same key with other optional members, as a tool may publish it.
	keyAPlain = `{"e":"AQAB","n":"AAAA","kid":"a","kty":"RSA"}`
	keyB      = `{"kty":"EC","kid":"b","crv":"P-256","x":"AA","y":"BB"}`
)

func documents(t *testing.T, name string, keys ...string) *cloud.Documents {
	t.Helper()
	d, err := cloud.Parse(fmt.Appendf(nil, `{"issuer":%q,"jwks_uri":"https://keys.example"}`, name), []byte(`{"keys":[`+strings.Join(keys, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const name = "https://issuer.example"
	for sentence, test := range map[string]struct {
		cluster, public *cloud.Documents
		want            []string
	}{
		"equal documents are right":         {documents(t, name, keyA, keyB), documents(t, name, keyB, keyA), nil},
		"optional members do not matter":    {documents(t, name, keyA), documents(t, name, keyAPlain), nil},
		"more public keys are right":        {documents(t, name, keyA), documents(t, name, keyA, keyB), nil},
		"a key that is not public is wrong": {documents(t, name, keyA, keyB), documents(t, name, keyA), []string{"key b of the cluster is not public"}},
		"another key of the same ID is wrong": {
			documents(t, name, keyA), documents(t, name, keyAElse),
			[]string{"the public key a differs from the cluster's"},
		},
		"a slash makes another issuer": {
			documents(t, name, keyA), documents(t, name+"/", keyA),
			[]string{`the public issuer is "https://issuer.example/", but tokens have "https://issuer.example"`},
		},
	} {
		wrong, _ := cloud.Compare(test.cluster, test.public, "")
		if diff := cmp.Diff(test.want, wrong); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}

func TestMalformedDocuments(t *testing.T) {
	t.Parallel()
	for want, test := range map[string][2]string{
		"discovery document: invalid character":     {"<html>", `{"keys":[]}`},
		"discovery document: the issuer is missing": {"{}", `{"keys":[]}`},
		"keys: the document has no keys":            {`{"issuer":"x"}`, `{}`},
		"keys: invalid character":                   {`{"issuer":"x"}`, `<html>`},
		`keys[0]: kid "a\nb"`:                       {`{"issuer":"x"}`, `{"keys":[{"kid":"a\nb"}]}`}, // a second command
	} {
		if _, err := cloud.Parse([]byte(test[0]), []byte(test[1])); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestPublicIssuers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"https://oidc.eks.eu-central-1.amazonaws.com/id/X": true,
		"https://192.0.2.1":                            true,
		"http://issuer.example":                        false,
		"https://kubernetes.default.svc.cluster.local": false,
		"https://kubernetes.default.svc":               false,
		"https://10.0.0.1:6443":                        false,
		"https://127.0.0.1":                            false,
		"https://api":                                  false,
		"kubernetes/serviceaccount":                    false,
	} {
		if got := cloud.Public(name); got != want {
			t.Errorf("%s: got %t, want %t", name, got, want)
		}
	}
}

func TestReadingAURL(t *testing.T) {
	t.Parallel()
	pages, ages := map[string]string{}, map[string]string{"/good/.well-known/openid-configuration": "soon", "/keys": "90"}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page, found := pages[r.URL.Path]; found {
			w.Header().Set("Age", ages[r.URL.Path])
			_, _ = w.Write([]byte(page))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	discovery := func(keys string) string { return fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, server.URL, keys) }
	pages["/good/.well-known/openid-configuration"] = discovery(server.URL + "/keys")
	pages["/keys"] = `{"keys":[` + keyA + `]}`
	pages["/plain/.well-known/openid-configuration"] = discovery("http://keys.example")
	pages["/gone/.well-known/openid-configuration"] = discovery(server.URL + "/none")
	pages["/huge/.well-known/openid-configuration"] = strings.Repeat(" ", 2<<20)
	for path, want := range map[string]string{
		"/good":  "",
		"/good/": "",
		"/plain": `jwks_uri "http://keys.example" is not an https URL`,
		"/gone":  "/none: status 404 Not Found",
		"/huge":  "the response has more than 1048576 bytes",
		"/none":  "/none/.well-known/openid-configuration: status 404 Not Found",
	} {
		got, err := cloud.FromURL(t.Context(), server.Client(), server.URL+path)
		if want == "" {
			if err != nil || got.Discovery.Issuer != server.URL || len(got.Keys) != 1 || got.Age != 90*time.Second {
				t.Errorf("%s: got %v and %v", path, got, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}
