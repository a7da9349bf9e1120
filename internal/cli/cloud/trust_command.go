// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/token"
)

const trustHelp = `trust shows how to configure a cloud, so that it accepts the tokens of a
ServiceAccount, with the issuer of the cluster filled in. It changes nothing,
neither in the cloud nor in the cluster.`

const trustCloudHelp = `

It reads the annotations of the ServiceAccount; flags take precedence, so that
it also works before the ServiceAccount is annotated or exists. --part prints
only the cluster-wide part or only the ServiceAccount's.`

// Values of --output and --part of trust.
const (
	outputShell     = "shell"
	outputTerraform = "terraform"

	partAll            = "all"
	partCluster        = "cluster"
	partServiceAccount = "serviceaccount"
)

// NewTrustCommand returns the command trust.
func NewTrustCommand(c *command.CLI) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Show how to configure a cloud to trust a ServiceAccount.",
		Long:  trustHelp,
	}
	cmd.AddCommand(newTrustAWSCommand(c), newTrustAzureCommand(c), newTrustGCPCommand(c), newTrustIssuerCommand(c))
	return cmd
}

// trustCommand is one of trust aws, azure and gcp.
type trustCommand struct {
	*command.CLI
	format, part string
	issuer       string
	audience     string
	uploadKeys   bool // gcp only
	definition   *provider.Definition
	// parameters are the flags that stand for annotations, by the provider's names.
	parameters map[string]*string
	// newDocument makes the result.
	newDocument func(t Token, jwks string) (trustDocument, error)

	settings    *settings.Settings
	defaults    map[string]string // of the cluster, for the ServiceAccount
	annotations map[string]string // of the ServiceAccount
}

// trustDocument is the trust configuration of a cloud.
type trustDocument interface {
	Shell() Script
	Terraform() Script
}

// newCloudCommand returns a command without its own parameters.
func newCloudCommand(c *command.CLI, name, cloud, example string) (*trustCommand, *cobra.Command) {
	builtin := provider.Builtin()
	k := &trustCommand{
		CLI: c, format: outputShell, part: partAll, parameters: map[string]*string{},
		definition: builtin[slices.IndexFunc(builtin, func(d *provider.Definition) bool { return d.Name == name })],
	}
	cmd := &cobra.Command{
		Use:               name + " serviceaccount/NAME",
		Short:             "Show what " + cloud + " must be told to trust a ServiceAccount.",
		Long:              "trust " + name + " says what " + cloud + " must be told, so that it accepts the tokens\nof a ServiceAccount." + trustCloudHelp,
		Example:           example,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.CompleteServiceAccountReferences,
		RunE:              func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args) },
	}
	c.AddConfig(cmd)
	command.AddChoice(cmd, &k.format, "output", "o", "Output format", outputShell, command.OutputJSON, command.OutputYAML, outputTerraform)
	command.AddChoice(cmd, &k.part, "part", "", "Part of the shell's or Terraform's output", partAll, partCluster, partServiceAccount)
	cmd.Flags().StringVar(&k.issuer, "issuer", "", "Issuer of the tokens. Without it, the cluster's.")
	cmd.Flags().StringVar(&k.audience, "audience", "", "Audience of the tokens. Without it, the audience in the annotations, or else the one that "+cloud+" expects.")
	return k, cmd
}

// parameter adds a flag that stands for an annotation of the provider.
func (k *trustCommand) parameter(cmd *cobra.Command, name, usage string) {
	k.parameters[name] = cmd.Flags().String(name, "", usage+" Without it, the value of the annotation "+k.definition.Key(name)+".")
}

func newTrustAWSCommand(c *command.CLI) *cobra.Command {
	k, cmd := newCloudCommand(c, "aws", "AWS", `  # The commands that let the ServiceAccount assume the role of its annotation
  lanyard trust aws serviceaccount/cart --namespace shop

  # The same as Terraform, before the ServiceAccount is annotated
  lanyard trust aws sa/cart --role-arn "$ROLE_ARN" --output terraform

  # Only the trust policy
  lanyard trust aws sa/cart -o json | jq .role.assumeRolePolicyDocument`)
	k.parameter(cmd, "role-arn", "ARN of the role.")
	k.newDocument = func(t Token, _ string) (trustDocument, error) {
		role, err := k.required("role-arn")
		if err != nil {
			return nil, err
		}
		return NewAWS(t, role)
	}
	return cmd
}

func newTrustAzureCommand(c *command.CLI) *cobra.Command {
	k, cmd := newCloudCommand(c, "azure", "Azure", `  # The commands that give a managed identity a federated credential
  lanyard trust azure serviceaccount/cart --resource-group workload-identities

  # Only the federated credential, for an app registration
  lanyard trust azure serviceaccount/cart -o json | jq .federatedCredential`)
	identity := cmd.Flags().String("identity", "", "Name of the managed identity. Without it, NAMESPACE-NAME.")
	group := cmd.Flags().String("resource-group", "", "Resource group of the managed identity. Without it, the output asks for it.")
	k.newDocument = func(t Token, _ string) (trustDocument, error) { return NewAzure(t, *identity, *group) }
	return cmd
}

func newTrustGCPCommand(c *command.CLI) *cobra.Command {
	k, cmd := newCloudCommand(c, "gcp", "Google Cloud", `  # The commands that let the ServiceAccount use the provider of its annotation
  lanyard trust gcp serviceaccount/cart --namespace shop

  # Only the part for another ServiceAccount of the same cluster
  lanyard trust gcp serviceaccount/cart --namespace shop --part serviceaccount`)
	k.parameter(cmd, "workload-identity-provider", "Workload identity provider.")
	k.parameter(cmd, "service-account", "E-mail of the service account to impersonate.")
	project := cmd.Flags().String("project", "", "ID of the provider's project. Without it, the commands look it up.")
	cmd.Flags().BoolVar(&k.uploadKeys, "upload-keys", false, "Upload the cluster's public keys, so that Google does not have to read the issuer. They always are if the issuer is not public.")
	k.newDocument = func(t Token, jwks string) (trustDocument, error) {
		pool, err := k.required("workload-identity-provider")
		if err != nil {
			return nil, err
		}
		email, err := k.value("service-account")
		if err != nil {
			return nil, err
		}
		return NewGCP(t, GCPOptions{Provider: pool, ServiceAccount: email, Project: *project, JWKS: jwks})
	}
	return cmd
}

func (k *trustCommand) run(ctx context.Context, args []string) error {
	reference, err := command.ParseReference(args, command.ServiceAccountKind)
	if err != nil {
		return err
	}
	t := Token{Issuer: k.issuer, ServiceAccount: reference.Name}
	if t.Namespace, err = k.Namespace(); err != nil {
		return err
	}
	if k.settings, err = k.CLI.Settings(ctx); err != nil {
		return err
	}
	k.defaults = k.settings.Defaults.For(t.Namespace, t.ServiceAccount).Parameters
	client, _, err := k.Clients()
	if err != nil {
		return err
	}
	serviceAccount, err := client.CoreV1().ServiceAccounts(t.Namespace).Get(ctx, t.ServiceAccount, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		k.Note("serviceaccount %s/%s does not exist yet", t.Namespace, t.ServiceAccount)
	case err != nil:
		return fmt.Errorf("get serviceaccount %s/%s: %w", t.Namespace, t.ServiceAccount, err)
	default:
		k.annotations = serviceAccount.Annotations
		k.NoteUnknown(serviceAccount)
	}
	if t.Audience, err = k.audienceOf(); err != nil {
		return err
	}
	jwks, err := k.completeIssuer(ctx, client, &t)
	if err != nil {
		return err
	}
	document, err := k.newDocument(t, jwks)
	if err != nil {
		return err
	}
	if !Public(t.Issuer) && jwks == "" {
		k.Note("warning: the issuer %s is not public, so the cloud cannot read its keys", t.Issuer)
	}
	return (&command.Output{Format: k.format}).Write(k.CLI, &trustResult{document, k.format, k.part})
}

// completeIssuer sets the issuer unless a flag has done so. It returns the public
// keys of the cluster if they must be uploaded.
func (k *trustCommand) completeIssuer(ctx context.Context, client kubernetes.Interface, t *Token) (jwks string, err error) {
	upload := func() bool { return k.uploadKeys || k.definition.Name == "gcp" && !Public(t.Issuer) }
	if t.Issuer != "" && !upload() {
		return "", nil
	}
	documents, err := FromCluster(ctx, client.CoreV1().RESTClient())
	if err != nil {
		return "", fmt.Errorf("read the issuer of the cluster: %w", err)
	}
	if t.Issuer == "" {
		t.Issuer = documents.Discovery.Issuer
	}
	if upload() {
		jwks = string(documents.KeysText)
	}
	return jwks, nil
}

// value returns the value of a parameter: of the flag, the annotation or the cluster, in
// this order; empty if none of them has one.
func (k *trustCommand) value(name string) (string, error) {
	value, from := *k.parameters[name], "--"+name
	if value == "" {
		key := k.settings.Keys.Parameter(k.definition, name)
		value, from = k.annotations[key], "annotation "+key
	}
	if value == "" || value == annotations.ClusterDefault {
		return k.defaults[k.definition.Key(name)], nil
	}
	p := &k.definition.Parameters[slices.IndexFunc(k.definition.Parameters, func(p provider.Parameter) bool { return p.Name == name })]
	if p.Expand != nil {
		value = p.Expand(value, func(name string) string { return k.defaults[k.definition.Key(name)] })
	}
	parsed, err := p.Read(value)
	if err != nil {
		return "", fmt.Errorf("%s: got %q: %w", from, value, err)
	}
	return parsed, nil
}

// required is value for a parameter that must have one.
func (k *trustCommand) required(name string) (string, error) {
	value, err := k.value(name)
	if err == nil && value == "" {
		return "", command.Usagef("--%s: got none, and annotation %s of the ServiceAccount is not set, or %q, and the cluster has no default", name, k.settings.Keys.Parameter(k.definition, name), annotations.ClusterDefault)
	}
	return value, err
}

// audienceOf returns the audience of the tokens.
func (k *trustCommand) audienceOf() (string, error) {
	value, from := k.audience, "--audience"
	for _, key := range []string{k.settings.Keys.ProviderAudience(k.definition), k.settings.Keys.Audience} {
		if value == "" {
			value, from = k.annotations[key], "annotation "+key
		}
	}
	if value == "" {
		value, from = k.defaults[k.definition.Key("audience")], "the cluster's default"
	}
	if value == "" {
		values := provider.Values{}
		for name := range k.parameters {
			parsed, err := k.value(name)
			if err != nil {
				return "", err
			}
			values[name] = parsed
		}
		var complete bool
		if value, complete = values.Expand(k.definition.DefaultAudience); !complete {
			// newDocument returns the error for missing values.
			return "-", nil
		}
	}
	parsed, err := annotations.ParseAudience(value, k.definition.MaxAudienceBytes, k.settings.Defaults.ReservedAudiences)
	if err != nil {
		return "", fmt.Errorf("%s: got %q: %w", from, value, err)
	}
	return parsed, nil
}

// trustResult is a document in one of its formats.
type trustResult struct {
	trustDocument
	format, part string
}

// MarshalJSON returns the document in the form of the cloud.
func (r *trustResult) MarshalJSON() ([]byte, error) { return json.Marshal(r.trustDocument) }

func (r *trustResult) Print(p *command.Page) {
	script := r.Shell()
	if r.format == outputTerraform {
		script = r.Terraform()
	}
	var parts []string
	if r.part != partServiceAccount && script.Cluster != "" {
		parts = append(parts, script.Cluster)
	}
	if r.part != partCluster && script.ServiceAccount != "" {
		parts = append(parts, script.ServiceAccount)
	}
	p.Line("%s", strings.TrimSuffix(strings.Join(parts, "\n"), "\n"))
}

const trustIssuerHelp = `trust issuer shows the issuer of the cluster's tokens and the keys that sign
them.

With --to, it prepares the two documents that clouds read for upload. A
directory gets them as files. For s3://BUCKET/PATH, gs://BUCKET/PATH and
azblob://ACCOUNT/CONTAINER, it writes the commands that upload them.

With --verify, it reads the public documents at a URL, without a login, and
compares them with the keys of the cluster. The exit code is 1 if clouds would
deny tokens. Run it again after a change of the keys.`

const trustIssuerExamples = `  # See the issuer and its keys
  lanyard trust issuer

  # Upload the documents
  lanyard trust issuer --to s3://example-issuers/production > upload.sh

  # Write them into a directory, for an issuer that the cluster will have
  lanyard trust issuer --issuer https://issuer.example.com/prod --to issuer

  # Compare the public documents with the cluster
  lanyard trust issuer --verify https://issuer.example.com/production`

// trustIssuerCommand holds the flags of trust issuer.
type trustIssuerCommand struct {
	*command.CLI
	command.Output
	issuer, to, verify, caFile string
}

func newTrustIssuerCommand(c *command.CLI) *cobra.Command {
	k := &trustIssuerCommand{CLI: c}
	cmd := &cobra.Command{
		Use:     "issuer",
		Short:   "Show, publish or verify the issuer of the cluster's tokens.",
		Long:    trustIssuerHelp,
		Example: trustIssuerExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) },
	}
	k.Output.AddFlag(cmd)
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
	if result.SigningKey, err = k.signingKey(ctx); err != nil {
		k.Note("warning: the key that signs at present is not known: %v", err)
	}
	if k.verify != "" {
		if result.Public, err = k.compare(ctx, documents, result.SigningKey); err != nil {
			return fmt.Errorf("--verify %s: %w", k.verify, err)
		}
	}
	if err := k.Write(k.CLI, result); err != nil {
		return err
	}
	if result.Public != nil && len(result.Public.Wrong) > 0 {
		return command.ErrFound
	}
	return nil
}

// signingKey returns the ID of the key that signs a new token.
func (k *trustIssuerCommand) signingKey(ctx context.Context) (string, error) {
	client, _, err := k.Clients()
	if err != nil {
		return "", err
	}
	namespace, err := k.Namespace()
	if err != nil {
		return "", err
	}
	text, err := requestToken(ctx, client, namespace, "default", provider.Token{Audience: "lanyard-verify", ExpirationSeconds: annotations.MinTokenExpirationSeconds})
	if err != nil {
		return "", err
	}
	claims, err := token.Parse(text)
	if err != nil {
		return "", err
	}
	return claims.KeyID, nil
}

// compare reads the public documents as a cloud does.
func (k *trustIssuerCommand) compare(ctx context.Context, cluster *Documents, signing string) (*publicIssuer, error) {
	client, err := httpClient(k.caFile)
	if err != nil {
		return nil, err
	}
	defer k.Progress("reading the public documents")()
	public, err := FromURL(ctx, client, k.verify)
	if err != nil {
		return nil, err
	}
	found := &publicIssuer{URL: k.verify, Keys: public.KeyIDs()}
	found.Wrong, found.Old = Verify(cluster, public, signing)
	return found, nil
}

// publish writes the documents, or the commands that upload them.
func (k *trustIssuerCommand) publish(documents *Documents) error {
	at := k.issuer
	if at == "" {
		at = documents.Discovery.Issuer
	}
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
	_, err = fmt.Fprint(k.Out, place.Shell(published))
	return err
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
		p.Marked(command.Bad, "×", text)
	}
	if len(r.Public.Wrong) == 0 {
		p.Marked(command.Good, "√", "has the issuer and all keys of the cluster")
	}
	for _, id := range r.Public.Old {
		p.Marked(command.Warn, "‼", fmt.Sprintf("key %s is public, but the cluster does not have it any more; publish the documents to remove it", id))
	}
}
