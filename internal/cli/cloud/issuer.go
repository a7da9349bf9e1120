// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/token"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	// DiscoveryPath is the path of the discovery document below the issuer.
	DiscoveryPath = "/.well-known/openid-configuration"
	// keysPath is where every API server serves its keys.
	keysPath = "/openid/v1/jwks"
	// maxBytes limits each document.
	maxBytes = 1 << 20
)

// Discovery has fields of a discovery document.
type Discovery struct {
	Issuer  string `json:"issuer"`
	JWKSURI string `json:"jwks_uri"`
}

// Documents are the public documents of an issuer.
type Documents struct {
	Discovery Discovery
	// Keys are the public keys by their IDs. A key is its parameters, in one order.
	Keys map[string]string
	// DiscoveryText and KeysText are the documents as they were read.
	DiscoveryText, KeysText []byte

	secret error // the reason, if the keys must not be published
}

// Parse reads both documents.
func Parse(discovery, keys []byte) (*Documents, error) {
	d := Documents{DiscoveryText: discovery, KeysText: keys, Keys: map[string]string{}}
	if err := json.Unmarshal(discovery, &d.Discovery); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	if d.Discovery.Issuer == "" {
		return nil, errors.New("discovery document: the issuer is missing")
	}
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(keys, &set); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("keys: the document has no keys")
	}
	for i, key := range set.Keys {
		id, _ := key["kid"].(string)
		switch {
		case d.secret != nil:
		case key["d"] != nil || key["k"] != nil: // the members of private keys (RFC 7518)
			d.secret = fmt.Errorf("keys[%d] is a private key; do not publish this document", i)
		case id == "":
			d.secret = fmt.Errorf("keys[%d] has no kid", i)
		}
		// The parameters that identify a key: RFC 7638.
		d.Keys[id] = fmt.Sprintf("%v %v %v %v %v %v", key["kty"], key["n"], key["e"], key["crv"], key["x"], key["y"])
	}
	return &d, nil
}

// FromCluster reads the documents of the cluster itself. The response of the API server to a user
// without the right is not an object, so the message of client-go's error would be "unknown".
func FromCluster(ctx context.Context, client rest.Interface) (*Documents, error) {
	var texts [2][]byte
	for i, path := range []string{DiscoveryPath, keysPath} {
		text, err := client.Get().AbsPath(path).DoRaw(ctx)
		if apierrors.IsForbidden(err) {
			message := "you may not get " + path + ": ask an administrator for the ClusterRole lanyard-view"
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: message}}
		}
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", path, err)
		}
		texts[i] = text
	}
	return Parse(texts[0], texts[1])
}

// FromURL reads the documents of a URL without credentials, like a cloud.
func FromURL(ctx context.Context, client *http.Client, base string) (*Documents, error) {
	discovery, err := get(ctx, client, strings.TrimSuffix(base, "/")+DiscoveryPath)
	if err != nil {
		return nil, err
	}
	var d Discovery
	if err := json.Unmarshal(discovery, &d); err != nil {
		return nil, fmt.Errorf("discovery document: %w", err)
	}
	if !strings.HasPrefix(d.JWKSURI, "https://") {
		return nil, fmt.Errorf("discovery document: jwks_uri %q is not an https URL", d.JWKSURI)
	}
	keys, err := get(ctx, client, d.JWKSURI)
	if err != nil {
		return nil, err
	}
	return Parse(discovery, keys)
}

func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	status, body, err := exchange.Read(client, request, maxBytes)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("get %s: status %d %s", address, status, http.StatusText(status))
	}
	return bytes.TrimSpace(body), err
}

// Compare compares the public documents with the cluster. signing is the ID of the present
// signing key; empty if it is not known. wrong are mistakes for which clouds deny the
// cluster's tokens. old are public keys that the cluster does not have: before or after a
// rotation, they are not a mistake.
func Compare(cluster, public *Documents, signing string) (wrong, old []string) {
	if got, want := public.Discovery.Issuer, cluster.Discovery.Issuer; got != want {
		wrong = append(wrong, fmt.Sprintf("the public issuer is %q, but tokens have %q", got, want))
	}
	for _, id := range cluster.KeyIDs() {
		key, found := public.Keys[id]
		switch {
		case !found:
			wrong = append(wrong, fmt.Sprintf("key %s of the cluster is not public", id))
		case key != cluster.Keys[id]:
			wrong = append(wrong, fmt.Sprintf("the public key %s differs from the cluster's", id))
		}
	}
	switch {
	case signing == "":
	case cluster.Keys[signing] == "":
		wrong = append(wrong, fmt.Sprintf("the cluster signs with key %s, but does not serve it: every API server needs its public half in --service-account-key-file", signing))
	case public.Keys[signing] == "":
		wrong = append(wrong, fmt.Sprintf("the cluster signs with key %s at present: clouds deny all new tokens", signing))
	}
	old = slices.DeleteFunc(public.KeyIDs(), func(id string) bool { return cluster.Keys[id] != "" })
	return wrong, old
}

// Public reports whether a cloud could read the documents of the issuer: it is an
// https URL of a host that is not the cluster's own.
func Public(issuer string) bool {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" {
		return false
	}
	host := strings.TrimSuffix(u.Hostname(), ".")
	if address, err := netip.ParseAddr(host); err == nil {
		return !address.IsPrivate() && !address.IsLoopback() && !address.IsLinkLocalUnicast()
	}
	return strings.Contains(host, ".") && !localHost.MatchString(host)
}

var localHost = regexp.MustCompile(`\.(svc|local|internal|localhost)$`)

// KeyIDs returns the IDs of the keys, sorted.
func (d *Documents) KeyIDs() []string { return slices.Sorted(maps.Keys(d.Keys)) }

// At returns the documents as they must be published, so that the issuer is url:
// the discovery document names that URL, and the keys below it. It returns an error
// for keys that must not be published.
func (d *Documents) At(url string) (*Documents, error) {
	if err := errors.Join(CheckIssuer(url), d.secret); err != nil {
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
	_ = json.Indent(&text, []byte(compact(document)+"\n"), "", "  ") // compact returns JSON
	at.DiscoveryText = text.Bytes()
	return &at, nil
}

// Files returns the documents by their paths below the issuer.
func (d *Documents) Files() map[string][]byte {
	return map[string][]byte{
		strings.TrimPrefix(DiscoveryPath, "/"): d.DiscoveryText,
		strings.TrimPrefix(keysPath, "/"):      append(bytes.TrimRight(bytes.Clone(d.KeysText), "\n"), '\n'),
	}
}

// Place is where documents are uploaded to.
type Place struct {
	// Host is the bucket, or the account of Azure, and Below is the path with its slashes.
	// Container and Folder are the parts of the path for Azure.
	Host, Below, Container, Folder string

	scheme string
	// issuer matches the issuer that the place has if nothing is in front of it, such as a
	// content delivery network.
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

// Has reports whether the documents of an issuer with this URL belong to the place.
func (p *Place) Has(issuer string) bool { return p.issuer.MatchString(issuer) }

// Shell returns the commands that upload the documents.
func (p *Place) Shell(documents *Documents) (string, error) {
	all, err := execute(struct {
		*Place
		Keys, Discovery string
		Paths           []string
	}{p, string(documents.KeysText), string(documents.DiscoveryText), []string{keysPath[1:], DiscoveryPath[1:]}}, "publish.tmpl")
	return all["shell "+p.scheme], err
}

type trustIssuerCommand struct {
	*command.CLI
	command.Output
	issuer, to, verify, caFile string
}

func newTrustIssuerCommand(c *command.CLI) *cobra.Command {
	k := &trustIssuerCommand{CLI: c}
	cmd := command.New(help("issuer"), cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) })
	k.Output.AddFlag(cmd, "Issuer")
	cmd.Flags().StringVar(&k.issuer, "issuer", "", "With --to: the issuer in the documents. Without it, the cluster's.")
	cmd.Flags().StringVar(&k.to, "to", "", "Directory, s3://BUCKET/PATH, gs://BUCKET/PATH or azblob://ACCOUNT/CONTAINER to publish the documents in.")
	cmd.Flags().StringVar(&k.verify, "verify", "", "URL of the public issuer to compare with the cluster.")
	cmd.Flags().StringVar(&k.caFile, "ca-file", "", "With --verify: PEM file with the CA of the URL's certificate. Without it, the CAs of the system are trusted, as in a cloud.")
	return cmd
}

type issuerResult struct {
	Issuer string `json:"issuer"`
	// Keys are the IDs of the keys that the API server serves. SigningKey signs at
	// present; it is empty if the user may not request a token.
	Keys       []string      `json:"keys"`
	SigningKey string        `json:"signingKey,omitempty"`
	Public     *publicIssuer `json:"public,omitempty"`
}

// publicIssuer is the issuer that was found at a URL.
type publicIssuer struct {
	URL   string   `json:"url"`
	Keys  []string `json:"keys"`
	Wrong []string `json:"wrong,omitempty"`
	// Old are the keys that the cluster no longer has.
	Old []string `json:"old,omitempty"`
}

func (k *trustIssuerCommand) run(ctx context.Context) error {
	switch {
	case k.to != "" && k.verify != "":
		return command.Usagef("--to cannot be used with --verify")
	case k.issuer != "" && k.to == "":
		return command.Usagef("--issuer needs --to")
	case k.caFile != "" && k.verify == "":
		return command.Usagef("--ca-file needs --verify")
	}
	client, _, err := k.Clients()
	if err != nil {
		return err
	}
	documents, err := FromCluster(ctx, client.CoreV1().RESTClient())
	if err != nil {
		return fmt.Errorf("read the issuer of the cluster: %w", err)
	}
	if k.to != "" {
		return k.publish(documents)
	}
	result := &issuerResult{Issuer: documents.Discovery.Issuer, Keys: documents.KeyIDs()}
	if result.SigningKey, err = k.signingKey(ctx, client); err != nil {
		k.Note("warning: the key that signs at present is not known: %v", err)
	}
	if k.verify != "" {
		if result.Public, err = k.compare(ctx, documents, result.SigningKey); err != nil {
			return fmt.Errorf("--verify %s: %w", k.verify, err)
		}
	}
	return command.FoundIf(result.Public != nil && len(result.Public.Wrong) > 0, k.Write(k.CLI, result))
}

func (k *trustIssuerCommand) signingKey(ctx context.Context, client kubernetes.Interface) (string, error) {
	namespace, err := k.Namespace()
	if err != nil {
		return "", err
	}
	r := &exchange.Request{Namespace: namespace, ServiceAccount: cluster.DefaultServiceAccount, Audience: "lanyard-verify", ExpirationSeconds: annotations.MinTokenExpirationSeconds}
	if err := requestToken(ctx, client, r); err != nil {
		return "", err
	}
	claims, err := token.Parse(r.Token)
	if err != nil {
		return "", err
	}
	return claims.KeyID, nil
}

// compare reads the public documents like a cloud, and compares them.
func (k *trustIssuerCommand) compare(ctx context.Context, cluster *Documents, signing string) (*publicIssuer, error) {
	client, err := exchange.NewClient(k.caFile)
	if err != nil {
		return nil, err
	}
	defer k.Progress("reading the public documents")()
	public, err := FromURL(ctx, client, k.verify)
	if err != nil {
		return nil, err
	}
	found := &publicIssuer{URL: k.verify, Keys: public.KeyIDs()}
	found.Wrong, found.Old = Compare(cluster, public, signing)
	return found, nil
}

// publish writes the documents, or the commands that upload them.
func (k *trustIssuerCommand) publish(documents *Documents) error {
	at := cmp.Or(k.issuer, documents.Discovery.Issuer)
	published, err := documents.At(at)
	if err != nil {
		return err
	}
	if !Public(at) {
		k.Note("warning: the issuer %s is not public: give the cluster a public issuer, or pass --issuer", at)
	}
	if !strings.Contains(k.to, "://") {
		return k.writeFiles(published)
	}
	place, err := ParsePlace(k.to)
	if err != nil {
		return command.Usagef("--to: %w", err)
	}
	if !place.Has(at) {
		k.Note("warning: the issuer is %s; make sure that it shows %s", at, k.to)
	}
	script, err := place.Shell(published)
	if err != nil {
		return err
	}
	p := command.NewPage(k.Out)
	p.Lines(script)
	return p.Err
}

// writeFiles writes the documents into the directory of --to.
func (k *trustIssuerCommand) writeFiles(published *Documents) error {
	for name, text := range published.Files() {
		path := filepath.Join(k.to, filepath.FromSlash(name))
		// Everybody may read them: they are public.
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)) //nolint:gosec // see above
		if err != nil {
			return fmt.Errorf("--to: %w", err)
		}
	}
	k.Note("wrote the documents of %s into %s", published.Discovery.Issuer, k.to)
	return nil
}

func (r *issuerResult) Print(p *command.Page) {
	p.Line("%s", p.Style(command.Title, "issuer "+r.Issuer))
	for _, id := range r.Keys {
		note := ""
		if id == r.SigningKey {
			note = ", signs at present"
		}
		p.Line("  key %s%s", id, note)
	}
	if r.Public == nil {
		return
	}
	p.Line("")
	p.Line("%s", p.Style(command.Title, "public at "+r.Public.URL))
	for _, text := range r.Public.Wrong {
		p.Marked(command.Bad, text)
	}
	if len(r.Public.Wrong) == 0 {
		p.Marked(command.Good, "has the issuer and all keys of the cluster")
	}
	for _, id := range r.Public.Old {
		p.Marked(command.Warn, fmt.Sprintf("key %s is public, but the cluster does not have it any more; publish the documents to remove it", id))
	}
}
