// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"fmt"
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
	command.Output
	part       string
	issuer     string
	audience   string
	uploadKeys bool // gcp only
	definition *provider.Definition
	// parameters are the flags that stand for annotations, by the provider's names.
	parameters map[string]*string
	// newTrust makes the result. It gets the values of the parameters, and the public keys
	// if they must be uploaded.
	newTrust func(t Token, values provider.Values, jwks string) (*Trust, error)

	settings    *settings.Settings
	defaults    map[string]string // of the cluster, for the ServiceAccount
	annotations map[string]string // of the ServiceAccount
}

// newCloudCommand returns a command without its own parameters.
func newCloudCommand(c *command.CLI, name, cloud, example string) (*trustCommand, *cobra.Command) {
	builtin := provider.Builtin()
	k := &trustCommand{
		CLI: c, part: partAll, parameters: map[string]*string{},
		definition: builtin[slices.IndexFunc(builtin, func(d *provider.Definition) bool { return d.Name == name })],
	}
	cmd := &cobra.Command{
		Use:               name + " serviceaccount/NAME",
		Short:             "Show what " + cloud + " must be told to trust a ServiceAccount.",
		Long:              "trust " + name + " says what " + cloud + " must be told, so that it accepts the tokens\nof a ServiceAccount." + trustCloudHelp,
		Example:           example,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.CompleteServiceAccountReferences(),
		RunE:              func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args) },
	}
	c.AddConfig(cmd)
	k.Output.AddFlag(cmd, "Trust", outputShell, outputTerraform)
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
	k.newTrust = func(t Token, values provider.Values, _ string) (*Trust, error) { return NewAWS(t, values["role-arn"]) }
	return cmd
}

func newTrustAzureCommand(c *command.CLI) *cobra.Command {
	k, cmd := newCloudCommand(c, "azure", "Azure", `  # The commands that give a managed identity a federated credential
  lanyard trust azure serviceaccount/cart --resource-group workload-identities

  # Only the federated credential, for an app registration
  lanyard trust azure serviceaccount/cart -o json | jq .federatedCredential`)
	identity := cmd.Flags().String("identity", "", "Name of the managed identity. Without it, NAMESPACE-NAME.")
	group := cmd.Flags().String("resource-group", "", "Resource group of the managed identity. Without it, the output asks for it.")
	k.newTrust = func(t Token, _ provider.Values, _ string) (*Trust, error) { return NewAzure(t, *identity, *group) }
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
	k.newTrust = func(t Token, values provider.Values, jwks string) (*Trust, error) {
		return NewGCP(t, GCPOptions{Provider: values["workload-identity-provider"], Email: values["service-account"], Project: *project, JWKS: jwks})
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
	values, err := k.values()
	if err != nil {
		return err
	}
	if t.Audience, err = k.audienceOf(values); err != nil {
		return err
	}
	jwks, err := k.completeIssuer(ctx, client, &t)
	if err != nil {
		return err
	}
	trust, err := k.newTrust(t, values, jwks)
	if err != nil {
		return err
	}
	if !Public(t.Issuer) && jwks == "" {
		k.Note("warning: the issuer %s is not public, so the cloud cannot read its keys", t.Issuer)
	}
	return k.Write(k.CLI, &trustResult{trust, cmp.Or(k.Format, outputShell), k.part})
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

// values returns the values of the parameters: of the flag, the annotation or the cluster,
// in this order; empty if none of them has one.
func (k *trustCommand) values() (provider.Values, error) {
	values := provider.Values{}
	byCluster := func(name string) string { return k.defaults[k.definition.Key(name)] }
	for i := range k.definition.Parameters {
		p := &k.definition.Parameters[i]
		if k.parameters[p.Name] == nil {
			continue
		}
		key := k.settings.Keys.Parameter(k.definition, p.Name)
		value, from := *k.parameters[p.Name], "--"+p.Name
		if value == "" {
			value, from = k.annotations[key], "annotation "+key
		}
		if value == "" || value == annotations.ClusterDefault {
			values[p.Name] = byCluster(p.Name)
			if p.Required && values[p.Name] == "" {
				return nil, command.Usagef("--%s: got none, and annotation %s of the ServiceAccount is not set, or %q, and the cluster has no default",
					p.Name, key, annotations.ClusterDefault)
			}
			continue
		}
		if p.Expand != nil {
			value = p.Expand(value, byCluster)
		}
		var err error
		if values[p.Name], err = p.Read(value); err != nil {
			return nil, fmt.Errorf("%s: got %q: %w", from, value, err)
		}
	}
	return values, nil
}

// audienceOf returns the audience of the tokens.
func (k *trustCommand) audienceOf(values provider.Values) (string, error) {
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
		value, _ = values.Expand(k.definition.DefaultAudience) // every parameter in it is required
	}
	parsed, err := annotations.ParseAudience(value, k.definition.MaxAudienceBytes, k.settings.Defaults.ReservedAudiences)
	if err != nil {
		return "", fmt.Errorf("%s: got %q: %w", from, value, err)
	}
	return parsed, nil
}

// trustResult is a configuration in one of its formats.
type trustResult struct {
	*Trust
	format, part string
}

func (r *trustResult) Print(p *command.Page) {
	var parts []string
	for _, part := range []string{partCluster, partServiceAccount} {
		if text := r.Text(r.format, part); text != "" && (r.part == partAll || r.part == part) {
			parts = append(parts, text)
		}
	}
	p.Lines(strings.Join(parts, "\n"))
}
