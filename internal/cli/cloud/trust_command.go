// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

//go:embed help/*.txt
var helps embed.FS

// help returns the text of a command for command.New. A test reads the texts of all commands.
func help(name string) string {
	text, _ := helps.ReadFile("help/" + name + ".txt")
	return string(text)
}

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
	k := &trustCommand{CLI: c, part: partAll}
	cmd := command.New(help("trust"), cobra.RangeArgs(0, 3), func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return command.Usagef("a provider and a ServiceAccount are missing: %s trust aws|azure|gcp|PROVIDER NAME", c.Name)
		}
		k.provider = args[0]
		return k.run(cmd.Context(), args[1:])
	})
	k.addFlags(cmd, "the provider", outputShell)
	cmd.Flags().BoolVar(&k.uploadKeys, "upload-keys", false, "Register the cluster's public keys, so that the provider does not have to read the issuer. They always are if the issuer is not public.")
	cmd.Flags().StringToStringVar(&k.given, "parameter", nil, "Parameter of the provider, as NAME=VALUE. Defaults to the annotation. Can be repeated.")
	cmd.AddCommand(newTrustAWSCommand(c), newTrustAzureCommand(c), newTrustGCPCommand(c), newTrustIssuerCommand(c))
	return cmd
}

// trustCommand is trust for one provider.
type trustCommand struct {
	*command.CLI
	command.Output
	part       string
	issuer     string
	audience   string
	uploadKeys bool // gcp and custom providers only
	// provider is the name of the provider.
	provider string
	// given are the values of the flags that stand for annotations, by the provider's names.
	given map[string]string
	// newTrust makes the result for a built-in provider. jwks are the public keys if they must
	// be uploaded.
	newTrust func(t Token, values provider.Values, jwks string) (*Trust, error)
	// unneeded are required parameters that the result does not need, with any valid value.
	unneeded map[string]string
	// missing is the annotation key of such a parameter, if the ServiceAccount lacks it.
	missing string
}

// newCloudCommand returns a command for a built-in provider, without its own parameters.
func newCloudCommand(c *command.CLI, name, cloud string) (*trustCommand, *cobra.Command) {
	k := &trustCommand{CLI: c, part: partAll, provider: name, given: map[string]string{}}
	cmd := command.New(help(name), cobra.RangeArgs(1, 2), func(cmd *cobra.Command, args []string) error {
		for name := range k.given {
			k.given[name], _ = cmd.Flags().GetString(name) // the error is for a flag that does not exist
		}
		return k.run(cmd.Context(), args)
	})
	cmd.ValidArgsFunction = c.CompleteServiceAccounts()
	k.addFlags(cmd, cloud, outputShell, outputTerraform)
	command.AddChoice(cmd, &k.part, "part", "Part of the shell's or Terraform's output", partAll, partCluster, partServiceAccount)
	return k, cmd
}

// addFlags adds the flags that all providers have.
func (k *trustCommand) addFlags(cmd *cobra.Command, cloud string, formats ...string) {
	k.AddConfig(cmd)
	k.Output.AddFlag(cmd, "Trust", formats...)
	cmd.Flags().StringVar(&k.issuer, "issuer", "", "Issuer of the tokens. Defaults to the cluster's.")
	cmd.Flags().StringVar(&k.audience, "audience", "", "Audience of the tokens. Defaults to the audience in the annotations, or else the audience that "+cloud+" expects.")
}

// parameter adds a flag that stands for an annotation of the provider.
func (k *trustCommand) parameter(cmd *cobra.Command, name, usage string) {
	k.given[name] = ""
	cmd.Flags().String(name, "", usage+" Defaults to the annotation "+k.provider+"-"+name+".")
}

func newTrustAWSCommand(c *command.CLI) *cobra.Command {
	k, cmd := newCloudCommand(c, "aws", "AWS")
	k.parameter(cmd, "role-arn", "ARN of the role, or its name if the webhook has a prefix for names.")
	k.newTrust = func(t Token, values provider.Values, _ string) (*Trust, error) { return NewAWS(t, values["role-arn"]) }
	return cmd
}

func newTrustAzureCommand(c *command.CLI) *cobra.Command {
	k, cmd := newCloudCommand(c, "azure", "Azure")
	identity := cmd.Flags().String("identity", "", "Name of the managed identity. Defaults to NAMESPACE-NAME.")
	group := cmd.Flags().String("resource-group", "", "Resource group of the managed identity. By default, the output asks for it.")
	k.unneeded = map[string]string{"client-id": "00000000-0000-0000-0000-000000000000", "tenant-id": "00000000-0000-0000-0000-000000000000"}
	k.newTrust = func(t Token, _ provider.Values, _ string) (*Trust, error) {
		return NewAzure(t, AzureOptions{Identity: *identity, ResourceGroup: *group, ClientIDKey: k.missing})
	}
	return cmd
}

func newTrustGCPCommand(c *command.CLI) *cobra.Command {
	k, cmd := newCloudCommand(c, "gcp", "Google Cloud")
	k.parameter(cmd, "workload-identity-provider", "Workload identity provider.")
	k.parameter(cmd, "service-account", "E-mail of the service account to impersonate, or its name if the webhook has a default project.")
	project := cmd.Flags().String("project", "", "ID of the provider's project. Defaults to a command that looks it up.")
	cmd.Flags().BoolVar(&k.uploadKeys, "upload-keys", false, "Upload the cluster's public keys, so that Google does not have to read the issuer. They always are if the issuer is not public.")
	k.newTrust = func(t Token, values provider.Values, jwks string) (*Trust, error) {
		return NewGCP(t, GCPOptions{Provider: values["workload-identity-provider"], Email: values["service-account"], Project: *project, JWKS: jwks})
	}
	return cmd
}

func (k *trustCommand) run(ctx context.Context, args []string) error {
	read, namespace, name, err := readerOf(ctx, k.CLI, args)
	if err != nil {
		return err
	}
	s := read.settings
	d, err := k.definition(s)
	if err != nil {
		return err
	}
	t := Token{Issuer: k.issuer, Namespace: namespace, ServiceAccount: name, Prefix: s.Keys.Prefix}
	existing, err := k.annotations(ctx, read, &t)
	if err != nil {
		return err
	}
	identity, err := k.identity(s, d, &t, existing)
	if err != nil {
		return err
	}
	t.Audience = identity.Audience
	jwks, err := k.completeIssuer(ctx, read.client, d, &t)
	if err != nil {
		return err
	}
	newTrust := k.newTrust
	if newTrust == nil {
		newTrust = func(t Token, values provider.Values, jwks string) (*Trust, error) {
			return NewCustom(t, d, values, jwks)
		}
	}
	trust, err := newTrust(t, identity.Values, jwks)
	if err != nil {
		return err
	}
	if err := k.Webhook.Unread; err != nil && k.audience == "" {
		k.Note("warning: the settings of the webhook could not be read, so the audience %s may not be the cluster's: %v. Pass the configuration file with --config.", t.Audience, err)
	}
	if !Public(t.Issuer) && jwks == "" {
		k.Note("warning: the issuer %s is not public, so the cloud cannot read its keys", t.Issuer)
	}
	return k.Write(k.CLI, &trustResult{trust, cmp.Or(k.Format, outputShell), k.part})
}

// definition returns the provider. For a custom one, its settings must be known.
func (k *trustCommand) definition(s *settings.Settings) (*provider.Definition, error) {
	var names []string
	for _, d := range s.Keys.Providers {
		custom := slices.IndexFunc(provider.Builtin(), func(b *provider.Definition) bool { return b.Name == d.Name }) < 0
		if d.Name == k.provider && custom == (k.newTrust == nil) {
			return d, nil
		}
		if custom {
			names = append(names, d.Name)
		}
	}
	if err := k.Webhook.Unread; err != nil {
		return nil, fmt.Errorf("provider %q: the settings of the webhook could not be read: %w; pass its configuration file with --config", k.provider, err)
	}
	known := strings.Join(append(clouds(), names...), ", ")
	return nil, command.Usagef("provider %q: the webhook does not have it; choose one of %s", k.provider, known)
}

// annotations returns the annotations of the ServiceAccount and the annotations of its mappings.
func (k *trustCommand) annotations(ctx context.Context, read *reader, t *Token) (map[string]string, error) {
	values := map[string]string{}
	serviceAccount, err := read.serviceAccount(ctx, t.Namespace, t.ServiceAccount)
	switch {
	case apierrors.IsNotFound(err):
		k.Note("serviceaccount %s/%s does not exist yet", t.Namespace, t.ServiceAccount)
	case err != nil:
		return nil, err
	default:
		maps.Copy(values, serviceAccount.Annotations)
		k.NoteUnknown(serviceAccount)
	}
	maps.Copy(values, read.settings.Keys.Map(read.settings.Mappings, t.Namespace, t.ServiceAccount, values))
	return values, nil
}

// completeIssuer sets the issuer unless a flag has done so. It returns the public
// keys of the cluster if they must be uploaded.
func (k *trustCommand) completeIssuer(ctx context.Context, client kubernetes.Interface, d *provider.Definition, t *Token) (jwks string, err error) {
	possible := k.provider == "gcp" || d.TrustHas(provider.TrustKeysFile)
	if k.uploadKeys && !possible {
		return "", command.Usagef("--upload-keys: the text \"trust\" of provider %s has no {%s}", d.Name, provider.TrustKeysFile)
	}
	upload := func() bool { return possible && (k.uploadKeys || !Public(t.Issuer)) }
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

// identity returns the identity to trust, as the webhook reads it: from the flags, the
// existing annotations and the defaults of the cluster, in this order. Annotations that
// the ServiceAccount still needs are added to t.
func (k *trustCommand) identity(s *settings.Settings, d *provider.Definition, t *Token, existing map[string]string) (*provider.Identity, error) {
	values := map[string]string{}
	for key, value := range existing {
		if name, ours := strings.CutPrefix(key, s.Keys.Prefix); ours && (key == s.Keys.Audience || d.OwnsKey(name)) {
			values[key] = value
		}
	}
	set := func(name, value string) {
		if key := s.Keys.Parameter(d, name); value != "" && values[key] != value {
			values[key] = value
			t.Annotate = append(t.Annotate, key+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.given)) {
		if !d.OwnsKey(d.Key(name)) {
			return nil, command.Usagef("--parameter: provider %s has no parameter %q that an annotation sets", d.Name, name)
		}
		set(name, k.given[name])
	}
	set("audience", k.audience)
	defaults := s.Defaults.For(t.Namespace, t.ServiceAccount)
	if err := k.complete(d, s.Keys, defaults, values, set); err != nil {
		return nil, err
	}
	identity, errs := annotations.ParseServiceAccount(s.Keys, values, defaults)
	if len(errs) > 0 {
		return nil, k.mistake(errs[0], s.Keys.Prefix+d.Key(""))
	}
	return &identity.Providers[0], nil
}

// complete sets the annotations without which the ServiceAccount does not ask for an
// identity of the provider.
func (k *trustCommand) complete(d *provider.Definition, keys *annotations.Keys, defaults *annotations.Defaults, values map[string]string, set func(name, value string)) error {
	asks := slices.ContainsFunc(d.Parameters, func(p provider.Parameter) bool {
		return p.Identity && values[keys.Parameter(d, p.Name)] != ""
	})
	for i := range d.Parameters {
		p := &d.Parameters[i]
		key, hasDefault := keys.Parameter(d, p.Name), defaults.Parameters[d.Key(p.Name)] != ""
		unneeded := k.unneeded[p.Name]
		if d.Trust != "" && !d.TrustHas(p.Name) {
			unneeded = p.Example
		}
		switch {
		case !p.Required || p.ClusterOnly || values[key] != "":
		case hasDefault && p.Identity && !asks:
			set(p.Name, annotations.ClusterDefault)
		case hasDefault:
		case unneeded == "":
			return k.noParameter(p.Name, key)
		default:
			values[key] = unneeded
			if p.Identity {
				k.missing = key
			}
		}
	}
	return nil
}

// noParameter returns the error for a parameter without a value.
func (k *trustCommand) noParameter(name, key string) error {
	flag := "--" + name
	if k.newTrust == nil {
		flag = "--parameter " + name + "=VALUE"
	}
	defaults := "the cluster has no default"
	if unread := k.Webhook.Unread; unread != nil {
		defaults = fmt.Sprintf("the default of the cluster is not known, because the settings of the webhook could not be read: %v; pass its configuration file with --config", unread)
	}
	return command.Usagef("%s is missing: the ServiceAccount has no annotation %s, and %s", flag, key, defaults)
}

// mistake returns a mistake in an annotation, or in the flag that stands for the annotation.
// prefix starts the keys of the provider's annotations.
func (k *trustCommand) mistake(err *field.Error, prefix string) error {
	key := strings.TrimSuffix(strings.TrimPrefix(err.Field, "metadata.annotations["), "]")
	from, name := "annotation "+key, strings.TrimPrefix(key, prefix)
	if k.given[name] != "" || name == "audience" && k.audience != "" {
		from = "--" + name
	}
	if unread := k.Webhook.Unread; unread != nil {
		return fmt.Errorf("%s: %s; it may be correct with the settings of the webhook, which could not be read: %w; pass its configuration file with --config", from, err.ErrorBody(), unread)
	}
	return fmt.Errorf("%s: %s", from, err.ErrorBody())
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
