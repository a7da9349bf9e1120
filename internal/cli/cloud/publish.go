// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// KeyIDs returns the IDs of the keys, sorted.
func (d *Documents) KeyIDs() []string { return slices.Sorted(maps.Keys(d.Keys)) }

// At returns the documents as they must be published, so that the issuer is url:
// the discovery document names that URL, and the keys below it. It returns an error
// for keys that must not be published.
func (d *Documents) At(url string) (*Documents, error) {
	if err := CheckIssuer(url); err != nil {
		return nil, err
	}
	if err := checkPublic(d.KeysText); err != nil {
		return nil, err
	}
	var document map[string]any
	if err := json.Unmarshal(d.DiscoveryText, &document); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	at := *d
	at.Discovery = Discovery{Issuer: url, JWKSURI: strings.TrimSuffix(url, "/") + keysPath}
	document["issuer"], document["jwks_uri"] = at.Discovery.Issuer, at.Discovery.JWKSURI
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	at.DiscoveryText = text.Bytes()
	return &at, nil
}

// checkPublic returns an error if a key is not a public key with an ID.
func checkPublic(keys []byte) error {
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
			// The members of private keys (RFC 7518).
			D      json.RawMessage `json:"d"`
			Secret json.RawMessage `json:"k"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(keys, &set); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	for i, key := range set.Keys {
		switch {
		case key.D != nil || key.Secret != nil:
			return fmt.Errorf("keys[%d]: got a private key, want only public ones; do not publish this document", i)
		case key.ID == "":
			return fmt.Errorf("keys[%d]: got no kid, want one", i)
		}
	}
	return nil
}

// Files returns the documents by their paths below the issuer.
func (d *Documents) Files() map[string][]byte {
	return map[string][]byte{
		strings.TrimPrefix(DiscoveryPath, "/"): d.DiscoveryText,
		strings.TrimPrefix(keysPath, "/"):      append(bytes.TrimRight(bytes.Clone(d.KeysText), "\n"), '\n'),
	}
}

// Verify compares the public documents with the cluster. signing is the ID of the
// present signing key; empty if it is not known. wrong are mistakes for which clouds
// deny tokens. old are public keys that the cluster does not have any more.
func Verify(cluster, public *Documents, signing string) (wrong, old []string) {
	wrong = Compare(cluster, public)
	_, served := cluster.Keys[signing]
	_, isPublic := public.Keys[signing]
	switch {
	case signing != "" && !served:
		wrong = append(wrong, fmt.Sprintf("the cluster signs with key %s, but does not serve it: every API server needs its public half in --service-account-key-file", signing))
	case signing != "" && !isPublic:
		wrong = append(wrong, fmt.Sprintf("the cluster signs with key %s at present: clouds deny all new tokens", signing))
	}
	for _, id := range public.KeyIDs() {
		if _, found := cluster.Keys[id]; !found {
			old = append(old, id)
		}
	}
	return wrong, old
}

// Place is where documents are uploaded to.
type Place struct {
	// URL is the issuer that the place has if nothing is in front of it, such as a
	// content delivery network. It is empty if the place does not tell.
	URL string

	upload func(file, path string) string
	region string // if not empty, the pattern of URLs that only differ in their region
}

// ParsePlace reads s3://BUCKET/PATH, gs://BUCKET/PATH or azblob://ACCOUNT/CONTAINER.
func ParsePlace(text string) (*Place, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() != "" {
		return nil, fmt.Errorf("place %q: want s3://BUCKET/PATH, gs://BUCKET/PATH or azblob://ACCOUNT/CONTAINER", text)
	}
	path := strings.Trim(u.Path, "/")
	below := strings.TrimSuffix("/"+path, "/")
	switch u.Scheme {
	case "s3":
		return &Place{
			upload: func(file, name string) string {
				return fmt.Sprintf("aws s3 cp %s %s --content-type application/json\n", file, Quote("s3://"+u.Host+below+"/"+name))
			},
			region: "https://" + u.Host + ".s3.*.amazonaws.com" + below,
		}, nil
	case "gs":
		return &Place{
			URL: "https://storage.googleapis.com/" + u.Host + below,
			upload: func(file, name string) string {
				return fmt.Sprintf("gcloud storage cp %s %s \\\n  --content-type application/json --cache-control 'public, max-age=300'\n", file, Quote("gs://"+u.Host+below+"/"+name))
			},
		}, nil
	case "azblob":
		container, folder, _ := strings.Cut(path, "/")
		if container == "" {
			return nil, fmt.Errorf("place %q: got no container, want azblob://ACCOUNT/CONTAINER", text)
		}
		return &Place{
			URL: "https://" + u.Host + ".blob.core.windows.net" + below,
			upload: func(file, name string) string {
				if folder != "" {
					name = folder + "/" + name
				}
				return fmt.Sprintf("az storage blob upload --account-name %s --container-name %s --overwrite \\\n  --name %s --file %s --content-type application/json\n",
					Quote(u.Host), Quote(container), Quote(name), file)
			},
		}, nil
	}
	return nil, fmt.Errorf("place %q: got %q, want s3, gs or azblob", text, u.Scheme)
}

// Has reports whether the documents of an issuer with this URL belong to the place.
func (p *Place) Has(issuer string) bool {
	issuer = strings.TrimSuffix(issuer, "/")
	if p.region == "" {
		return issuer == p.URL
	}
	before, after, _ := strings.Cut(p.region, "*")
	region, ok := strings.CutPrefix(issuer, before)
	if !ok {
		return false
	}
	region, ok = strings.CutSuffix(region, after)
	return ok && region != "" && !strings.ContainsAny(region, "./")
}

// Shell returns the commands that upload the documents. The keys come first, so
// that the discovery document never names keys that are not there.
func (p *Place) Shell(documents *Documents) string {
	const directory = `"$DIRECTORY"/`
	return "DIRECTORY=$(mktemp -d)\n" +
		File(directory+"jwks", string(documents.KeysText)) +
		File(directory+"openid-configuration", string(documents.DiscoveryText)) +
		p.upload(directory+"jwks", strings.TrimPrefix(keysPath, "/")) +
		p.upload(directory+"openid-configuration", strings.TrimPrefix(DiscoveryPath, "/")) +
		"rm -r \"$DIRECTORY\"\n"
}
