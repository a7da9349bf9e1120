// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
)

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
		if err := json.Unmarshal([]byte(at.DiscoveryText()), &document); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"issuer": url, "jwks_uri": keysURL, "more": []any{"RS256"}}
		if diff := cmp.Diff(want, document); diff != "" {
			t.Errorf("discovery document (-want +got):\n%s", diff)
		}
		if got := at.KeysText(); got != `{"keys":[`+keyA+"]}" || at.Discovery.Issuer != url {
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
		`key "b" is a private key`: strings.Replace(keyB, `"x"`, `"d":"SECRET","x"`, 1),
		`key "c" is a private key`: `{"kty":"oct","kid":"c","k":"SECRET"}`,
		"a key has no kid":         `{"kty":"RSA","n":"AA","e":"AQAB"}`,
	} {
		_, err := documents(t, "https://issuer.example", keyA, key).At("https://issuer.example")
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	const name = "https://issuer.example"
	own, both, other := documents(t, name, keyA), documents(t, name, keyB, keyA), documents(t, name, keyB)
	for sentence, test := range map[string]struct {
		published *cloud.Documents
		fleet     bool
		remove    []string
		want      string // the keys, or the error
	}{
		"the first cluster has only its keys":                     {nil, true, nil, "a"},
		"a fleet keeps the keys of other clusters":                {other, true, nil, "a b"},
		"a fleet with the cluster's key stays as it is":           {both, true, nil, "a b"},
		"the keys of a single cluster stay":                       {own, false, nil, "a"},
		"without a fleet, foreign keys are neither kept nor lost": {both, false, nil, "https://issuer.example has keys that this cluster does not have: b; if clusters sign with them, pass --fleet to keep them; otherwise, pass --remove-key b to remove one"},
		"a key that is named is removed":                          {both, false, []string{"b"}, "a"},
		"a key that is named is removed from a fleet":             {both, true, []string{"b"}, "a"},
		"a key that nobody has is not removed":                    {both, true, []string{"c"}, "--remove-key c: no such key is published; the keys of other clusters are: b"},
		"nothing is removed from nothing":                         {nil, true, []string{"b"}, "--remove-key b: no such key is published; the keys of other clusters are: none"},
		"an ID is quoted for the shell":                           {documents(t, name, hostileKey, keyA), false, nil, "https://issuer.example has keys that this cluster does not have: $(x); if clusters sign with them, pass --fleet to keep them; otherwise, pass --remove-key '$(x)' to remove one"},
		"a key of the cluster is not removed":                     {both, true, []string{"a"}, "--remove-key a: the cluster itself has this key, so clouds would deny its tokens; run the command in another cluster of the fleet"},
		"another key with the cluster's ID is an error":           {documents(t, name, keyAElse), true, nil, "key a is published, but differs from the cluster's key with this ID; pass --remove-key a if no other cluster signs with it"},
		"another key with the cluster's ID is replaced":           {documents(t, name, keyAElse), true, []string{"a"}, "a"},
	} {
		merged, err := own.Merge(test.published, test.fleet, test.remove)
		got := fmt.Sprint(err)
		if err == nil {
			again := documents(t, name, strings.TrimSuffix(strings.TrimPrefix(merged.KeysText(), `{"keys":[`), "]}"))
			if wrong, _ := cloud.Compare(own, again, ""); wrong != nil {
				t.Errorf("%s: got %v, want the keys of the cluster", sentence, wrong)
			}
			got = strings.Join(again.KeyIDs(), " ")
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", sentence, got, test.want)
		}
	}
}

func TestMergeAlgorithms(t *testing.T) {
	t.Parallel()
	parse := func(algorithm, key string) *cloud.Documents {
		d, err := cloud.Parse(fmt.Appendf(nil, `{"issuer":"https://issuer.example","id_token_signing_alg_values_supported":[%q]}`, algorithm), []byte(`{"keys":[`+key+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	own, published := parse("RS256", keyA), parse("ES256", keyB)
	for want, remove := range map[string][]string{"ES256 RS256": nil, "RS256": {"b"}} {
		merged, err := own.Merge(published, true, remove)
		if err != nil {
			t.Fatal(err)
		}
		at, err := merged.At("https://issuer.example")
		if err != nil {
			t.Fatal(err)
		}
		var document cloud.Discovery
		if err := json.Unmarshal([]byte(at.DiscoveryText()), &document); err != nil || strings.Join(document.Algorithms, " ") != want {
			t.Errorf("got %v and error %v, want %s", document.Algorithms, err, want)
		}
	}
}

// The hook of UpdateDirectory is the barrier: the second publisher runs after the first one
// has read the documents, and before it writes them.
func TestTwoPublishersOfADirectory(t *testing.T) {
	t.Parallel()
	const name = "https://issuer.example"
	dir := t.TempDir()
	publish := func(own *cloud.Documents, meanwhile func()) error {
		return cloud.UpdateDirectory(dir, func(published *cloud.Documents) (*cloud.Documents, error) {
			meanwhile()
			return own.Merge(published, true, nil)
		})
	}
	first, second := documents(t, name, keyA), documents(t, name, keyB)
	var denied error
	if err := publish(first, func() { denied = publish(second, func() {}) }); err != nil {
		t.Fatal(err)
	}
	if denied == nil || !strings.Contains(denied.Error(), "another lanyard is writing to the directory") {
		t.Errorf("got error %v, want the lock", denied)
	}
	if err := publish(second, func() {}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "openid", "v1", "jwks"))
	if want := `{"keys":[` + keyA + "," + keyB + "]}\n"; err != nil || string(text) != want {
		t.Errorf("got %s and error %v, want %s", text, err, want)
	}
	failure := errors.New("failure")
	if err := cloud.UpdateDirectory(dir, func(*cloud.Documents) (*cloud.Documents, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("got error %v, want %v", err, failure)
	}
	if files, _ := os.ReadDir(dir); len(files) != 2 {
		t.Errorf("got %v, want only the directories of the documents: no lock", files)
	}
}

func TestFromPublicKeys(t *testing.T) {
	t.Parallel()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&curve.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cloud.FromPublicKeys("https://issuer.example", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Keys []struct{ Kty, Alg, Crv, X, Y string }
	}
	if err := json.Unmarshal([]byte(d.KeysText()), &set); err != nil {
		t.Fatal(err)
	}
	point := []byte{4}
	for _, text := range []string{set.Keys[0].X, set.Keys[0].Y} {
		half, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(half) != 32 {
			t.Fatalf("%q: got %d bytes and error %v, want 32: RFC 7518, section 6.2.1.2", text, len(half), err)
		}
		point = append(point, half...)
	}
	got, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil || !got.Equal(&curve.PublicKey) || set.Keys[0].Kty+set.Keys[0].Alg+set.Keys[0].Crv != "ECES256P-256" || strings.Join(d.Discovery.Algorithms, " ") != "ES256" {
		t.Errorf("got %+v and error %v, want the same key", set.Keys[0], err)
	}
	for text, want := range map[string]string{
		"":                       "want RSA or ECDSA keys in the form PEM",
		"-----BEGIN PUBLIC KEY-": "want RSA or ECDSA keys in the form PEM",
		edKey:                    "want RSA or ECDSA keys in the form PEM",
	} {
		if _, err := cloud.FromPublicKeys("https://issuer.example", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
}

const edKey = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n"

// storage serves the documents with the header that the storage of a cloud has.
func storage(t *testing.T, keysPath, header, value string, published *cloud.Documents) *cloud.Documents {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(header, value)
		text := published.KeysText()
		if strings.HasSuffix(r.URL.Path, "openid-configuration") {
			text = fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, published.Discovery.Issuer, server.URL+keysPath)
		}
		_, _ = w.Write([]byte(text))
	})
	server.StartTLS()
	t.Cleanup(server.Close)
	read, err := cloud.FromURL(t.Context(), server.Client(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestUpload(t *testing.T) {
	t.Parallel()
	const name = "https://issuer.example/a"
	wanted := documents(t, name, keyA)
	former := documents(t, name, keyB)
	const put, blob, cp = "aws s3api put-object --bucket bucket --key", "az storage blob upload --account-name account --container-name container --name", "gcloud storage cp FILE"
	const json, cache = " --content-type application/json", " --cache-control public, max-age=300 --if-generation-match "
	tests := map[string]struct {
		place          string
		header, values string // of the published documents; none if there are none
		want           []string
	}{
		"S3": {"s3://bucket/a/b", "ETag", `"1a"`, []string{
			put + " a/b/openid/v1/jwks --body FILE" + json + " --if-match 1a",
			put + " a/b/.well-known/openid-configuration --body FILE" + json + " --if-match 1a",
		}},
		"S3 behind a network that compresses": {"s3://bucket", "ETag", `W/"1a"`, []string{
			put + " openid/v1/jwks --body FILE" + json + " --if-match 1a",
			put + " .well-known/openid-configuration --body FILE" + json + " --if-match 1a",
		}},
		"an empty bucket of S3": {"s3://bucket/a/b", "", "", []string{
			put + " a/b/openid/v1/jwks --body FILE" + json + " --if-none-match *",
			put + " a/b/.well-known/openid-configuration --body FILE" + json + " --if-none-match *",
		}},
		"Cloud Storage": {"gs://bucket", "X-Goog-Generation", "17", []string{
			cp + " gs://bucket/openid/v1/jwks" + json + cache + "17",
			cp + " gs://bucket/.well-known/openid-configuration" + json + cache + "17",
		}},
		"an empty bucket of Cloud Storage": {"gs://bucket", "", "", []string{
			cp + " gs://bucket/openid/v1/jwks" + json + cache + "0",
			cp + " gs://bucket/.well-known/openid-configuration" + json + cache + "0",
		}},
		"Azure Blob, whose ETag has no quotes without a version of the API": {"azblob://account/container/$(id)", "ETag", "0x8D", []string{
			blob + " $(id)/openid/v1/jwks --file FILE" + json + ` --overwrite --if-match "0x8D"`,
			blob + " $(id)/.well-known/openid-configuration --file FILE" + json + ` --overwrite --if-match "0x8D"`,
		}},
		"an empty container of Azure Blob": {"azblob://account/container", "", "", []string{
			blob + " openid/v1/jwks --file FILE" + json + " --if-none-match *",
			blob + " .well-known/openid-configuration --file FILE" + json + " --if-none-match *",
		}},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			place, err := cloud.ParsePlace(test.place)
			if err != nil {
				t.Fatal(err)
			}
			var published *cloud.Documents
			if test.header != "" {
				published = storage(t, "/openid/v1/jwks", test.header, test.values, former)
			}
			whole, err := place.Shell(wanted, published)
			if err != nil {
				t.Fatal(err)
			}
			// Keep the files.
			script := strings.Replace(whole, "DIRECTORY=$(mktemp -d)\n", "DIRECTORY=$PWD\n", 1)
			script = strings.Replace(script, `trap 'rm -r "$DIRECTORY"' EXIT`, "", 1)
			calls, directory := runScript(t, script)
			var got []string
			for _, call := range calls {
				for i, word := range call {
					if strings.HasPrefix(word, directory) {
						call[i] = "FILE"
					}
				}
				got = append(got, strings.Join(call, " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			for name, want := range map[string]string{"jwks": wanted.KeysText(), "openid-configuration": wanted.DiscoveryText()} {
				got, err := os.ReadFile(filepath.Join(directory, name))
				if err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(want) {
					t.Errorf("%s: got %q and error %v, want %q", name, got, err, want)
				}
			}
			if calls, _ := runScript(t, whole); len(calls) != len(test.want) {
				t.Errorf("got %d calls of the whole script, want %d", len(calls), len(test.want))
			}
		})
	}
}

func TestOnlyChangedDocumentsAreUploaded(t *testing.T) {
	t.Parallel()
	own, published := documents(t, "https://issuer.example/a", keyA), documents(t, "https://issuer.example/a", keyA, keyB)
	place, err := cloud.ParsePlace("s3://bucket")
	if err != nil {
		t.Fatal(err)
	}
	read := storage(t, "/openid/v1/jwks", "ETag", `"1a"`, published)
	published.Discovery, own.Discovery = read.Discovery, read.Discovery
	if script, err := place.Shell(published, read); err != nil || script != "" {
		t.Errorf("the same documents: got %q and error %v, want nothing", script, err)
	}
	if script, err := place.Shell(own, read); err != nil || strings.Count(script, "aws s3api") != 1 || !strings.Contains(script, "jwks") {
		t.Errorf("other keys: got %q and error %v, want one upload", script, err)
	}
	for sentence, unknown := range map[string]*cloud.Documents{
		"no ETag":                 storage(t, "/openid/v1/jwks", "Date", "", published),
		"the ETag of other paths": storage(t, "/keys.json", "ETag", `"1a"`, published),
	} {
		if _, err := place.Shell(own, unknown); err == nil || !strings.Contains(err.Error(), "does not show the version of openid/v1/jwks") {
			t.Errorf("%s: got error %v, want one", sentence, err)
		}
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
