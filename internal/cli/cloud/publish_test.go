// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
)

func TestCompareWithTheSigningKey(t *testing.T) {
	t.Parallel()
	const name = "https://issuer.example"
	tests := map[string]struct {
		cluster, public *cloud.Documents
		signing         string
		wrong, old      []string
	}{
		"equal documents":                 {documents(t, name, keyA, keyB), documents(t, name, keyB, keyA), "a", nil, nil},
		"a signing key that is not known": {documents(t, name, keyA), documents(t, name, keyA), "", nil, nil},
		"a new key that does not sign":    {documents(t, name, keyA, keyB), documents(t, name, keyA), "a", []string{"key b of the cluster is not public"}, nil},
		"a new key that signs": {
			documents(t, name, keyA, keyB), documents(t, name, keyA), "b",
			[]string{"key b of the cluster is not public", "the cluster signs with key b at present: clouds deny all new tokens"}, nil,
		},
		"a key that the cluster removed": {documents(t, name, keyA), documents(t, name, keyA, keyB), "a", nil, []string{"b"}},
		"a signing key that nobody has": {
			documents(t, name, keyA), documents(t, name, keyA), "c",
			[]string{"the cluster signs with key c, but does not serve it: every API server needs its public half in --service-account-key-file"}, nil,
		},
		"a signing key that only is public": {
			documents(t, name, keyA), documents(t, name, keyA, keyB), "b",
			[]string{"the cluster signs with key b, but does not serve it: every API server needs its public half in --service-account-key-file"}, []string{"b"},
		},
	}
	for sentence, test := range tests {
		wrong, old := cloud.Compare(test.cluster, test.public, test.signing)
		if diff := cmp.Diff(test.wrong, wrong); diff != "" {
			t.Errorf("%s: wrong (-want +got):\n%s", sentence, diff)
		}
		if diff := cmp.Diff(test.old, old, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: old (-want +got):\n%s", sentence, diff)
		}
	}
}

func TestDocumentsAtAnotherURL(t *testing.T) {
	t.Parallel()
	cluster, err := cloud.Parse([]byte(`{"issuer":"https://kubernetes.default.svc","jwks_uri":"https://192.0.2.10:6443/openid/v1/jwks","more":["RS256"]}`), []byte(`{"keys":[`+keyA+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	for url, keysURL := range map[string]string{
		"https://issuer.example/a?": "",
		"http://issuer.example":     "",
		"https://issuer.example/a":  "https://issuer.example/a/openid/v1/jwks",
		"https://issuer.example/a/": "https://issuer.example/a/openid/v1/jwks",
	} {
		at, err := cluster.At(url)
		if keysURL == "" {
			if err == nil {
				t.Errorf("%s: got no error", url)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var document map[string]any
		if err := json.Unmarshal(at.Files()[".well-known/openid-configuration"], &document); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"issuer": url, "jwks_uri": keysURL, "more": []any{"RS256"}}
		if diff := cmp.Diff(want, document); diff != "" {
			t.Errorf("discovery document (-want +got):\n%s", diff)
		}
		if got := string(at.Files()["openid/v1/jwks"]); got != `{"keys":[`+keyA+"]}\n" || at.Discovery.Issuer != url {
			t.Errorf("got %+v", at)
		}
	}
	if cluster.Discovery.Issuer != "https://kubernetes.default.svc" {
		t.Errorf("got %s, want the documents of the cluster unchanged", cluster.Discovery.Issuer)
	}
}

func TestSecretsAreNotPublished(t *testing.T) {
	t.Parallel()
	for want, key := range map[string]string{
		"keys[1] is a private key": strings.Replace(keyB, `"x"`, `"d":"SECRET","x"`, 1),
		"keys[1] is a private":     `{"kty":"oct","kid":"a","k":"SECRET"}`,
		"keys[1] has no kid":       `{"kty":"RSA","n":"AA","e":"AQAB"}`,
	} {
		_, err := documents(t, "https://issuer.example", keyA, key).At("https://issuer.example")
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

func TestUpload(t *testing.T) {
	t.Parallel()
	published := documents(t, "https://issuer.example/a", keyA)
	tests := map[string][][]string{
		"s3://bucket/a/b": {
			{"aws", "s3", "cp", "FILE", "s3://bucket/a/b/openid/v1/jwks", "--content-type", "application/json"},
			{"aws", "s3", "cp", "FILE", "s3://bucket/a/b/.well-known/openid-configuration", "--content-type", "application/json"},
		},
		"gs://bucket": {
			{"gcloud", "storage", "cp", "FILE", "gs://bucket/openid/v1/jwks", "--content-type", "application/json", "--cache-control", "public, max-age=300"},
			{"gcloud", "storage", "cp", "FILE", "gs://bucket/.well-known/openid-configuration", "--content-type", "application/json", "--cache-control", "public, max-age=300"},
		},
		"azblob://account/container/$(id)": {
			{"az", "storage", "blob", "upload", "--account-name", "account", "--container-name", "container", "--overwrite", "--name", "$(id)/openid/v1/jwks", "--file", "FILE", "--content-type", "application/json"},
			{"az", "storage", "blob", "upload", "--account-name", "account", "--container-name", "container", "--overwrite", "--name", "$(id)/.well-known/openid-configuration", "--file", "FILE", "--content-type", "application/json"},
		},
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			place, err := cloud.ParsePlace(text)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := place.Shell(published)
			if err != nil {
				t.Fatal(err)
			}
			// Keep the files.
			script := strings.Replace(whole, "DIRECTORY=$(mktemp -d)\n", "DIRECTORY=$PWD\n", 1)
			script = strings.Replace(script, "rm -r \"$DIRECTORY\"\n", "", 1)
			calls, directory := runScript(t, script)
			for _, call := range calls {
				for i, word := range call {
					if strings.HasPrefix(word, directory) {
						call[i] = "FILE"
					}
				}
			}
			if diff := cmp.Diff(want, calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			for name, want := range map[string][]byte{"jwks": published.KeysText, "openid-configuration": published.DiscoveryText} {
				got, err := os.ReadFile(filepath.Join(directory, name))
				if err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(string(want)) {
					t.Errorf("%s: got %q and error %v, want %q", name, got, err, want)
				}
			}
			if calls, _ := runScript(t, whole); len(calls) != len(want) {
				t.Errorf("got %d calls of the whole script, want %d", len(calls), len(want))
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		place, issuer string
		want          bool
	}{
		"S3":                       {"s3://bucket/a", "https://bucket.s3.eu-central-1.amazonaws.com/a", true},
		"S3 with a slash":          {"s3://bucket/a/", "https://bucket.s3.eu-central-1.amazonaws.com/a/", true},
		"another folder of S3":     {"s3://bucket/a", "https://bucket.s3.eu-central-1.amazonaws.com/b", false},
		"another bucket of S3":     {"s3://bucket/a", "https://other.s3.eu-central-1.amazonaws.com/a", false},
		"another host":             {"s3://bucket/a", "https://bucket.s3.evil.example/.amazonaws.com/a", false},
		"Cloud Storage":            {"gs://bucket/a", "https://storage.googleapis.com/bucket/a", true},
		"another folder":           {"gs://bucket/a", "https://storage.googleapis.com/bucket", false},
		"Azure Blob":               {"azblob://account/container", "https://account.blob.core.windows.net/container", true},
		"another account":          {"azblob://account/container", "https://other.blob.core.windows.net/container", false},
		"a network in front of it": {"gs://bucket/a", "https://issuer.example.com", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place, err := cloud.ParsePlace(test.place)
			if err != nil {
				t.Fatal(err)
			}
			if got := place.Has(test.issuer); got != test.want {
				t.Errorf("%s has %s: got %t, want %t", test.place, test.issuer, got, test.want)
			}
		})
	}
	for _, text := range []string{"", "directory", "https://bucket/a", "s3://", "s3://user@bucket", "gs://bucket?a", "azblob://account", "s3://bucket:80/a"} {
		if _, err := cloud.ParsePlace(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}
