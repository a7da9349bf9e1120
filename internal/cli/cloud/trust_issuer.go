// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/token"
)

// trustIssuerCommand holds the flags of trust issuer.
type trustIssuerCommand struct {
	*command.CLI
	command.Output
	issuer, to, verify, caFile string
}

func newTrustIssuerCommand(c *command.CLI) *cobra.Command {
	k := &trustIssuerCommand{CLI: c}
	cmd := &cobra.Command{
		Use:   "issuer",
		Short: "Show, publish or verify the issuer of the cluster's tokens.",
		Long:  help("issuer"),
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) },
	}
	k.Output.AddFlag(cmd, "Issuer")
	cmd.Flags().StringVar(&k.issuer, "issuer", "", "With --to: the issuer in the documents. Without it, the cluster's.")
	cmd.Flags().StringVar(&k.to, "to", "", "Directory, s3://BUCKET/PATH, gs://BUCKET/PATH or azblob://ACCOUNT/CONTAINER to publish the documents in.")
	cmd.Flags().StringVar(&k.verify, "verify", "", "URL of the public issuer to compare with the cluster.")
	cmd.Flags().StringVar(&k.caFile, "ca-file", "", "With --verify: PEM file with the CA of the URL's certificate. Without it, the CAs of the system are trusted, as in a cloud.")
	return cmd
}

// issuerResult is the output of trust issuer.
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

// signingKey returns the ID of the key that signs a new token.
func (k *trustIssuerCommand) signingKey(ctx context.Context, client kubernetes.Interface) (string, error) {
	namespace, err := k.Namespace()
	if err != nil {
		return "", err
	}
	text, err := requestToken(ctx, client, namespace, "default", "lanyard-verify", annotations.MinTokenExpirationSeconds)
	if err != nil {
		return "", err
	}
	claims, err := token.Parse(text)
	if err != nil {
		return "", err
	}
	return claims.KeyID, nil
}

// compare reads the public documents like a cloud, and compares them.
func (k *trustIssuerCommand) compare(ctx context.Context, cluster *Documents, signing string) (*publicIssuer, error) {
	client, err := NewClient(k.caFile)
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
