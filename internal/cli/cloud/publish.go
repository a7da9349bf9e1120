// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/util/keyutil"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// publicKey is a public key in the API server's format.
type publicKey struct {
	Use   string `json:"use"`
	Type  string `json:"kty"`
	ID    string `json:"kid"`
	Curve string `json:"crv,omitempty"`
	Alg   string `json:"alg"`
	N     string `json:"n,omitempty"`
	E     string `json:"e,omitempty"`
	X     string `json:"x,omitempty"`
	Y     string `json:"y,omitempty"`
}

// FromPublicKeys returns the documents of a future cluster with this issuer and these PEM
// keys, in the format of kube-apiserver's --service-account-key-file.
func FromPublicKeys(issuer string, pem []byte) (*Documents, error) {
	parsed, err := keyutil.ParsePublicKeysPEM(pem)
	if err != nil {
		return nil, fmt.Errorf("want RSA or ECDSA keys in the form PEM: %w", err)
	}
	var keys []publicKey
	var algorithms []string
	for _, one := range parsed {
		key, err := newPublicKey(one)
		if err != nil {
			return nil, err
		}
		keys, algorithms = append(keys, key), append(algorithms, key.Alg)
	}
	slices.Sort(algorithms)
	discovery := compact(map[string]any{ // as kube-apiserver has it
		"issuer": issuer, "response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": slices.Compact(algorithms),
	})
	return Parse([]byte(discovery), []byte(compact(map[string]any{"keys": keys})))
}

// newPublicKey returns the key with the ID that kube-apiserver computes: a hash of the key's DER
// (keyIDFromPublicKey in k8s.io/kubernetes/pkg/serviceaccount/jwt.go).
func newPublicKey(key any) (publicKey, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return publicKey{}, err
	}
	encode := base64.RawURLEncoding.EncodeToString
	sum := sha256.Sum256(der)
	p := publicKey{Use: "sig", ID: encode(sum[:])}
	switch key := key.(type) {
	case *rsa.PublicKey:
		exponent := binary.BigEndian.AppendUint64(nil, uint64(key.E)) //nolint:gosec // it is positive
		p.Type, p.Alg, p.N, p.E = "RSA", "RS256", encode(key.N.Bytes()), encode(bytes.TrimLeft(exponent, "\x00"))
	case *ecdsa.PublicKey:
		p.Type, p.Curve = "EC", key.Params().Name
		p.Alg = map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[p.Curve]
		point, err := key.Bytes() // 4, X and Y
		if err != nil || p.Alg == "" {
			return publicKey{}, fmt.Errorf("the curve %s is not one of P-256, P-384 and P-521", p.Curve)
		}
		half := len(point)/2 + 1
		p.X, p.Y = encode(point[1:half]), encode(point[half:])
	default:
		return publicKey{}, fmt.Errorf("the key is a %T, want RSA or ECDSA", key)
	}
	return p, nil
}

// Merge returns the documents to publish: the keys of the cluster and, with fleet, the
// published keys of other clusters, except those in remove. published may be nil. Without
// fleet, a published key that the cluster does not have is an error unless it is in remove,
// because another cluster may sign with it.
func (d *Documents) Merge(published *Documents, fleet bool, remove []string) (*Documents, error) {
	var kept []string
	if published != nil {
		_, kept = Compare(d, published, "")
	}
	for _, id := range remove {
		switch {
		case slices.Contains(kept, id):
		case d.Keys[id] != "":
			return nil, fmt.Errorf("--remove-key %s: the cluster itself has this key, so clouds would deny its tokens; run the command in another cluster of the fleet", id)
		default:
			return nil, fmt.Errorf("--remove-key %s: no such key is published; of other clusters are %s", id, listOf(kept))
		}
	}
	kept = slices.DeleteFunc(kept, func(id string) bool { return slices.Contains(remove, id) })
	if len(kept) > 0 && !fleet {
		return nil, fmt.Errorf("%s has keys that this cluster does not have: %s; if clusters sign with them, pass --fleet to keep them; otherwise, pass --remove-key %s to remove one", published.Discovery.Issuer, listOf(kept), Quote(kept[0]))
	}
	merged := *d
	merged.Keys, merged.texts = maps.Clone(d.Keys), maps.Clone(d.texts)
	for _, id := range kept {
		if d.Keys[id] != "" {
			return nil, fmt.Errorf("key %s is published, but differs from the cluster's key with this ID; pass --remove-key %s if no other cluster signs with it", id, Quote(id))
		}
		merged.Keys[id], merged.texts[id] = published.Keys[id], published.texts[id]
	}
	if len(kept) > 0 {
		all := slices.Sorted(slices.Values(slices.Concat(d.Discovery.Algorithms, published.Discovery.Algorithms)))
		merged.Discovery.Algorithms = slices.Compact(all)
	}
	var keys []json.RawMessage
	for _, id := range merged.KeyIDs() {
		keys = append(keys, merged.texts[id])
	}
	merged.KeysText = []byte(compact(map[string]any{"keys": keys}))
	return &merged, nil
}

func listOf(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	return strings.Join(ids, ", ")
}

// At returns the documents for the issuer url: the discovery document names url and, below
// it, the keys. It returns an error for private keys.
func (d *Documents) At(url string) (*Documents, error) {
	if err := errors.Join(CheckIssuer(url), d.secret()); err != nil {
		return nil, err
	}
	var document map[string]any
	if err := json.Unmarshal(d.DiscoveryText, &document); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	at := *d
	at.Discovery.Issuer, at.Discovery.JWKSURI = url, strings.TrimSuffix(url, "/")+keysPath
	document["issuer"], document["jwks_uri"] = at.Discovery.Issuer, at.Discovery.JWKSURI
	if len(d.Discovery.Algorithms) > 0 {
		document["id_token_signing_alg_values_supported"] = d.Discovery.Algorithms
	}
	var text bytes.Buffer
	_ = json.Indent(&text, []byte(compact(document)+"\n"), "", "  ") // compact returns JSON
	at.DiscoveryText = text.Bytes()
	return &at, nil
}

// secret returns an error if one of the keys must not be published.
func (d *Documents) secret() error {
	for _, id := range d.KeyIDs() {
		var private struct { // the members of private keys (RFC 7518)
			D any `json:"d"`
			K any `json:"k"`
		}
		switch err := json.Unmarshal(d.texts[id], &private); {
		case err != nil:
			return fmt.Errorf("key %s: %w", id, err)
		case private.D != nil || private.K != nil:
			return fmt.Errorf("key %q is a private key; do not publish it", id)
		case id == "":
			return errors.New("a key has no kid")
		}
	}
	return nil
}

// pathIn returns the path of a document in a directory.
func pathIn(dir, document string) string { return filepath.Join(dir, filepath.FromSlash(document)) }

// UpdateDirectory replaces the documents in a directory with the result of change, which gets
// the current documents, or nil if there are none. A second concurrent caller gets an error.
func UpdateDirectory(dir string, change func(published *Documents) (*Documents, error)) (err error) {
	const everybodyReads, everybodyLists = 0o644, 0o755
	if err := os.MkdirAll(dir, everybodyLists); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lanyard.lock"), os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("another lanyard is writing to the directory: %w; run the command again, or remove the file if no other lanyard runs", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close(), os.Remove(lock.Name())) }()
	published, err := fromDirectory(dir)
	if err != nil {
		return err
	}
	documents, err := change(published)
	if err != nil {
		return err
	}
	var files []command.File
	for _, file := range documents.files() {
		files = append(files, command.File{Path: pathIn(dir, file.Path), Text: file.Text})
	}
	return command.ReplaceFiles(files, everybodyReads, everybodyLists)
}

// fromDirectory reads the documents in a directory. It returns nil if there are no keys.
func fromDirectory(dir string) (*Documents, error) {
	keys, err := os.ReadFile(pathIn(dir, keysPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	discovery, err := os.ReadFile(pathIn(dir, DiscoveryPath))
	if err != nil {
		return nil, err
	}
	published, err := Parse(discovery, keys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return published, nil
}

// file is a document with its path below the issuer and the version that it replaces.
type file struct {
	Path, Text string
	version
}

// files returns the documents, the keys first, so that the discovery document never names
// keys that do not exist.
func (d *Documents) files() []file {
	return []file{
		{Path: keysPath[1:], Text: string(bytes.TrimRight(d.KeysText, "\n")) + "\n"},
		{Path: DiscoveryPath[1:], Text: string(d.DiscoveryText)},
	}
}

// changed returns the documents that differ from the published ones. published may be nil.
func (d *Documents) changed(published *Documents) []file {
	files := d.files()
	if published == nil {
		return files
	}
	files[0].version, files[1].version = published.keysVersion, published.discoveryVersion
	var was, is map[string]any
	_, _ = json.Unmarshal(published.DiscoveryText, &was), json.Unmarshal(d.DiscoveryText, &is) // both were parsed before
	if compact(was) == compact(is) {
		files = files[:1]
	}
	if maps.Equal(published.Keys, d.Keys) {
		files = files[1:]
	}
	return files
}

// Place is the destination of an upload.
type Place struct {
	// Host is the bucket, or the account of Azure, and Below is the path with its slashes.
	// Container and Folder are the parts of the path for Azure.
	Host, Below, Container, Folder string

	scheme string
	// issuer matches the issuers of the place without a CDN in front of it.
	issuer *regexp.Regexp
}

// ParsePlace reads s3://BUCKET/PATH, gs://BUCKET/PATH or azblob://ACCOUNT/CONTAINER.
func ParsePlace(text string) (*Place, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() != "" {
		return nil, fmt.Errorf("place %q: want s3://BUCKET/PATH, gs://BUCKET/PATH or azblob://ACCOUNT/CONTAINER", text)
	}
	path := strings.Trim(u.Path, "/")
	p := &Place{Host: u.Host, Below: strings.TrimSuffix("/"+path, "/") + "/", scheme: u.Scheme}
	p.Container, p.Folder, _ = strings.Cut(path+"/", "/")
	pattern, known := map[string]string{ // a star is a region
		"s3":     "https://" + u.Host + ".s3.*.amazonaws.com" + p.Below,
		"gs":     "https://storage.googleapis.com/" + u.Host + p.Below,
		"azblob": "https://" + u.Host + ".blob.core.windows.net" + p.Below,
	}[u.Scheme]
	switch {
	case !known:
		return nil, fmt.Errorf("place %q: %q is not one of s3, gs and azblob", text, u.Scheme)
	case u.Scheme == "azblob" && p.Container == "":
		return nil, fmt.Errorf("place %q has no container; write azblob://ACCOUNT/CONTAINER", text)
	}
	p.issuer = regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, "[^./]+") + "?$")
	return p, nil
}

// Has reports whether the place serves the documents of an issuer with this URL.
func (p *Place) Has(issuer string) bool { return p.issuer.MatchString(issuer) }

// Shell returns the commands that upload the documents that differ from the published ones, or "" if
// none differs. published may be nil. Each upload fails if its document changed in the meantime.
func (p *Place) Shell(documents, published *Documents) (string, error) {
	files := documents.changed(published)
	for _, f := range files {
		if published != nil && (p.scheme == "gs" && f.Generation == "" || p.scheme != "gs" && f.ETag == "") {
			return "", fmt.Errorf("the response of %s does not show the version of %s, so another cluster's keys could be lost; download the documents into a directory, pass it with --to, and upload it", published.Discovery.Issuer, f.Path)
		}
	}
	if len(files) == 0 {
		return "", nil
	}
	all, err := execute(struct {
		*Place
		Prefix string
		Files  []file
	}{p, p.Below[1:], files}, "publish.tmpl")
	return all["shell "+p.scheme], err
}
