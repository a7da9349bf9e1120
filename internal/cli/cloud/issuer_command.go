// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

type trustIssuerCommand struct {
	*command.CLI
	command.Output
	issuer, to, caFile, publicKey string
	fleet                         bool
	remove                        []string // IDs of keys
}

func newTrustIssuerCommand(c *command.CLI) *cobra.Command {
	k := &trustIssuerCommand{CLI: c}
	cmd := command.New(help("issuer"), command.NoArgs, func(cmd *cobra.Command, _ []string) error {
		for _, name := range []string{"issuer", "fleet", "remove-key", "public-key", "ca-file"} {
			if cmd.Flags().Changed(name) && k.to == "" {
				return command.Usagef("--%s needs --to", name)
			}
		}
		return k.run(cmd.Context())
	})
	k.Output.AddFlag(cmd, "Issuer")
	fs := cmd.Flags()
	fs.StringVar(&k.to, "to", "", "Where to publish the documents: a directory, s3://BUCKET/PATH, gs://BUCKET/PATH or azblob://ACCOUNT/CONTAINER.")
	fs.StringVar(&k.issuer, "issuer", "", "With --to: the issuer in the documents. Defaults to the cluster's.")
	fs.BoolVar(&k.fleet, "fleet", false, "With --to: keep the published keys of other clusters. All clusters with the same issuer can act as each other.")
	fs.StringArrayVar(&k.remove, "remove-key", nil, "With --to: ID of a published key to remove. Can be repeated.")
	fs.StringVar(&k.publicKey, "public-key", "", "With --to and --issuer: PEM file with the public keys of a cluster that does not exist yet.")
	fs.StringVar(&k.caFile, "ca-file", "", "With --to: PEM file with the CA of the issuer's certificate. Defaults to the CAs of the system.")
	return cmd
}

type issuerResult struct {
	Issuer string `json:"issuer"`
	// Keys are the IDs of the keys that the API server serves. SigningKey is the current
	// signing key, or empty if the user may not request a token.
	Keys       []string `json:"keys"`
	SigningKey string   `json:"signingKey,omitempty"`
}

func (k *trustIssuerCommand) run(ctx context.Context) error {
	if k.publicKey != "" {
		return k.publishFile(ctx)
	}
	client, documents, err := ownDocuments(ctx, k.CLI)
	if err != nil {
		return err
	}
	if k.to != "" {
		return k.publish(ctx, documents)
	}
	result := &issuerResult{Issuer: documents.Discovery.Issuer, Keys: documents.KeyIDs()}
	if result.SigningKey, err = SigningKey(ctx, k.CLI, client); err != nil {
		k.Note("warning: the current signing key is unknown: %v", err)
	}
	return k.Write(k.CLI, result)
}

// ownDocuments returns a client of the cluster, and the documents of its issuer.
func ownDocuments(ctx context.Context, c *command.CLI) (kubernetes.Interface, *Documents, error) {
	client, _, err := c.Clients()
	if err != nil {
		return nil, nil, err
	}
	documents, err := FromCluster(ctx, client.CoreV1().RESTClient())
	if err != nil {
		return nil, nil, fmt.Errorf("read the issuer of the cluster: %w", err)
	}
	return client, documents, nil
}

// SigningKey returns the ID of the current signing key, from a token that it requests and
// discards.
func SigningKey(ctx context.Context, c *command.CLI, client kubernetes.Interface) (string, error) {
	namespace, err := c.Namespace()
	if err != nil {
		return "", err
	}
	r := exchange.Request{Namespace: namespace, ServiceAccount: cluster.DefaultServiceAccount, Audience: "lanyard-verify", ExpirationSeconds: annotations.MinTokenExpirationSeconds}
	if err := requestToken(ctx, client, &r); err != nil {
		return "", err
	}
	claims, err := exchange.ParseToken(r.Token)
	if err != nil {
		return "", err
	}
	return claims.KeyID, nil
}

// publishFile publishes the keys in the file of --public-key.
func (k *trustIssuerCommand) publishFile(ctx context.Context) error {
	if k.issuer == "" {
		return command.Usagef("--public-key needs --issuer")
	}
	pem, err := os.ReadFile(k.publicKey)
	if err != nil {
		return fmt.Errorf("--public-key: %w", err)
	}
	documents, err := FromPublicKeys(k.issuer, pem)
	if err != nil {
		return fmt.Errorf("--public-key %s: %w", k.publicKey, err)
	}
	return k.publish(ctx, documents)
}

// isURL matches a place that is not a directory. Drives of Windows have one letter.
var isURL = regexp.MustCompile(`^[a-z0-9]{2,}:`)

// publish writes the documents, or the commands that upload them.
func (k *trustIssuerCommand) publish(ctx context.Context, own *Documents) error {
	at := cmp.Or(k.issuer, own.Discovery.Issuer)
	if err := CheckIssuer(at); err != nil {
		return err
	}
	if !Public(at) {
		k.Note("warning: the issuer %s is not public: give the cluster a public issuer, or pass --issuer", at)
	}
	if k.fleet {
		k.Note("all clusters with the issuer %s can act as each other: namespace and ServiceAccount of the same name are the same identity in each", at)
	}
	merge := func(published *Documents) (*Documents, error) {
		merged, err := own.Merge(published, k.fleet, k.remove)
		if err != nil {
			return nil, err
		}
		return merged.At(at)
	}
	if isURL.MatchString(k.to) {
		return k.writeCommands(ctx, at, merge)
	}
	err := UpdateDirectory(k.to, func(published *Documents) (_ *Documents, err error) {
		if published == nil { // the directory may be uploaded to a place that has documents
			if published, err = k.published(ctx, at); err != nil {
				return nil, err
			}
		}
		return merge(published)
	})
	if err != nil {
		return fmt.Errorf("--to %s: %w", k.to, err)
	}
	k.Note("wrote the documents of %s into %s", at, k.to)
	return nil
}

// published reads the published documents. It returns nil if nothing is published.
func (k *trustIssuerCommand) published(ctx context.Context, at string) (*Documents, error) {
	client, err := exchange.NewClient(k.caFile)
	if err != nil {
		return nil, err
	}
	published, err := FromURL(ctx, k.Progress(client), at)
	unread, isUnread := errors.AsType[unreadableError](err)
	_, noResponse := errors.AsType[*url.Error](err)
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case distrusted:
		return nil, fmt.Errorf("read the published documents: %w; pass the CA with --ca-file", err)
	case isUnread:
		reason := unread.Error()
		if noResponse {
			reason = "no response" // but not the texts of proxies and resolvers
		}
		k.Note("warning: no documents were found at %s (%s): make sure that these documents replace no others", at, reason)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the published documents of %s: %w", at, err)
	}
	return published, nil
}

// writeCommands writes the commands that upload the documents.
func (k *trustIssuerCommand) writeCommands(ctx context.Context, at string, merge func(published *Documents) (*Documents, error)) error {
	place, err := ParsePlace(k.to)
	if err != nil {
		return command.Usagef("--to: %w", err)
	}
	if !place.Has(at) {
		k.Note("warning: the issuer is %s; make sure that it shows %s", at, k.to)
	}
	published, err := k.published(ctx, at)
	if err != nil {
		return err
	}
	documents, err := merge(published)
	if err != nil {
		return err
	}
	script, err := place.Shell(documents, published)
	if err != nil {
		return err
	}
	if script == "" {
		k.Note("the documents of %s are up to date", at)
		return nil
	}
	p := command.NewPage(k.Out)
	p.Lines(script)
	return p.Err
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
}
