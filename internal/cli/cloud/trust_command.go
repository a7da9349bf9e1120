// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

//go:embed help/*.txt
var helps embed.FS

// help returns the help text of a command for command.New.
func help(name string) string {
	text, _ := helps.ReadFile("help/" + name + ".txt")
	return string(text)
}

// Values of --output and --part of trust.
const (
	outputShell     = "shell"
	outputTerraform = "terraform"
	// outputRemove is the shell's output with --remove.
	outputRemove = "remove"

	partAll            = "all"
	partCluster        = "cluster"
	partServiceAccount = "serviceaccount"
	// partPod is the command that exchanges a token in a new pod of the ServiceAccount.
	partPod = "pod"
)

// NewTrustCommand returns the command trust.
func NewTrustCommand(c *command.CLI) *cobra.Command {
	k := &trustCommand{CLI: c, part: partAll}
	k.cmd = command.New(help("trust"), cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if err := k.bundle.check(cmd, args); err != nil {
			return err
		}
		if len(k.bundle.Files.Filenames) > 0 {
			return k.runBundle(cmd.Context())
		}
		if len(args) < 2 {
			return command.Usagef("the provider or the ServiceAccount is missing: write %s trust aws|azure|gcp|PROVIDER NAME", c.Name)
		}
		k.provider = args[0]
		return k.run(cmd.Context(), args[1:])
	})
	k.addFlags("the provider", outputShell, outputTerraform)
	k.bundle.addFlags(k)
	k.addKeys("the provider")
	k.cmd.Flags().StringToStringVar(&k.parameters, "parameter", nil, "Parameter of the provider, as NAME=VALUE. Defaults to the annotation. Can be repeated.")
	k.cmd.AddCommand(append(cloudCommands(c), newTrustIssuerCommand(c))...)
	return k.cmd
}

// trustCommand is the command trust for one provider.
type trustCommand struct {
	*command.CLI
	command.Output
	cmd            *cobra.Command
	provider       string
	part, audience string
	remove         bool
	// Flags about the cluster's public keys, for gcp and custom providers.
	uploadKeys bool
	keepKeys   string
	removeKeys []string
	// parameters is the value of --parameter, and own are the names of the cloud's flags for
	// parameters.
	parameters map[string]string
	own        []string
	// flags contains the flags that apply to all tokens, and namespace is that of the ServiceAccounts.
	flags     Token
	namespace string
	// bundle contains the flags for CredentialsRequests.
	bundle bundle

	settings   *annotations.Settings
	definition *annotations.Provider
	// documents and keys are those of the cluster's issuer and those to upload, once they have been
	// read.
	documents *Documents
	keys      string
}

// custom reports whether the provider is a custom one.
func (k *trustCommand) custom() bool { return !slices.Contains(clouds(), k.provider) }

// cloudCommands returns the commands for the clouds.
func cloudCommands(c *command.CLI) []*cobra.Command {
	aws, azure, gcp := newCloudCommand(c, "aws"), newCloudCommand(c, "azure"), newCloudCommand(c, "gcp")
	aws.parameter("role-arn", "ARN of the role, or its name if the webhook has a prefix for names.")
	aws.addTags()
	azure.addTags()
	azure.cmd.Flags().StringVar(&azure.flags.Identity, "identity", "", "Name of the managed identity. Defaults to NAMESPACE-NAME.")
	azure.cmd.Flags().StringVar(&azure.flags.ResourceGroup, "resource-group", "", "Resource group of the managed identity. By default, the output asks for it.")
	gcp.parameter("workload-identity-provider", "Workload identity provider.")
	gcp.parameter("service-account", "E-mail of the service account to impersonate, or its name if the webhook has a default project.")
	gcp.cmd.Flags().StringVar(&gcp.flags.Project, "project", "", "Project ID of the provider. By default, the output looks it up.")
	gcp.addKeys("Google")
	return []*cobra.Command{aws.cmd, azure.cmd, gcp.cmd}
}

// newCloudCommand returns the command for a cloud, without its own flags.
func newCloudCommand(c *command.CLI, name string) *trustCommand {
	k := &trustCommand{CLI: c, part: partAll, provider: name}
	k.cmd = command.New(help(name), cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if k.remove && !cmd.Flags().Changed("part") {
			k.part = partServiceAccount // other ServiceAccounts need the other part
		}
		return k.run(cmd.Context(), args)
	})
	k.cmd.ValidArgsFunction = c.CompleteServiceAccounts()
	k.addFlags(exchange.Clouds()[name].Title, outputShell, outputTerraform)
	command.AddChoice(k.cmd, &k.part, "part", "Print only a part of the shell or Terraform output", partAll, partCluster, partServiceAccount)
	k.addRemove()
	return k
}

// ServiceAccountNames parses the arguments NAME, serviceaccount/NAME or serviceaccount NAME,
// without an API server.
func ServiceAccountNames(cmd *cobra.Command, args []string) (names []string, err error) {
	types := []string{"serviceaccount", "serviceaccounts", "sa"}
	if len(args) > 0 && slices.Contains(types, args[0]) {
		args = args[1:]
	}
	if len(args) == 0 {
		return nil, command.Usagef("the name of a ServiceAccount is missing: %s NAME", cmd.CommandPath())
	}
	for _, arg := range args {
		kind, name, found := strings.Cut(arg, "/")
		if !found {
			kind, name = types[0], arg
		}
		errs := validation.IsDNS1123Subdomain(name)
		switch {
		case !slices.Contains(types, kind):
			return nil, command.Usagef("%s: this command is for serviceaccount", arg)
		case len(errs) > 0:
			return nil, command.Usagef("%q is not the name of a ServiceAccount, and several names are separate arguments: %s", name, errs[0])
		case slices.Contains(names, name):
			return nil, command.Usagef("serviceaccount %s is named twice", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// addFlags adds the flags that all providers have.
func (k *trustCommand) addFlags(title string, formats ...string) {
	k.AddConfig(k.cmd)
	k.Output.AddFlag(k.cmd, "Trust", formats...)
	k.cmd.Flags().StringVar(&k.flags.Issuer, "issuer", "", "Issuer of the tokens. Defaults to the cluster's.")
	k.cmd.Flags().StringVar(&k.audience, "audience", "", "Audience of the tokens. Defaults to the audience in the annotations, or else the audience that "+title+" expects.")
}

// addRemove adds the flag that shows how to remove what the printed commands create.
func (k *trustCommand) addRemove() {
	k.cmd.Flags().BoolVar(&k.remove, "remove", false, "Show the commands that remove what the others create, by default without the cluster-wide part.")
}

// addTags adds the flag for tags at the cloud.
func (k *trustCommand) addTags() {
	k.cmd.Flags().StringToStringVar(&k.flags.Tags, "tag", nil, "Tag of the identity and the issuer at the cloud, as KEY=VALUE. Can be repeated.")
}

// addKeys adds the flags about the public keys of the cluster.
func (k *trustCommand) addKeys(title string) {
	fs := k.cmd.Flags()
	fs.BoolVar(&k.uploadKeys, "upload-keys", false, "Upload the cluster's public keys, so that "+title+" need not read the issuer. This is the default if the issuer is not public.")
	fs.StringVar(&k.keepKeys, "keep-keys", "", "File with the uploaded keys of other clusters: upload them together with the cluster's, because an upload replaces all keys.")
	fs.StringArrayVar(&k.removeKeys, "remove-key", nil, "With --keep-keys: ID of a key to leave out. Can be repeated.")
}

// parameter adds a flag that overrides an annotation of the provider.
func (k *trustCommand) parameter(name, usage string) {
	k.own = append(k.own, name)
	k.cmd.Flags().String(name, "", usage+" Defaults to the annotation "+k.provider+"-"+name+".")
}

// given returns the values of the flags, which override annotations, by parameter.
func (k *trustCommand) given() (map[string]given, error) {
	all := map[string]given{}
	for name, value := range k.parameters {
		if !k.definition.OwnsKey(k.definition.Key(name)) {
			return nil, command.Usagef("--parameter: provider %s has no parameter %q that an annotation sets", k.provider, name)
		}
		all[name] = given{value, "--parameter " + name}
	}
	for _, name := range append([]string{"audience"}, k.own...) {
		value, err := k.cmd.Flags().GetString(name)
		if err != nil {
			return nil, err
		}
		all[name] = given{value, "--" + name}
	}
	return all, nil
}

func (k *trustCommand) run(ctx context.Context, args []string) error {
	names, err := ServiceAccountNames(k.cmd, args)
	if err != nil {
		return err
	}
	format, err := k.format()
	if err != nil {
		return err
	}
	if k.namespace, err = k.Namespace(); err != nil {
		return err
	}
	if k.settings, err = k.Settings(ctx); err != nil {
		return err
	}
	if err := k.define(); err != nil {
		return err
	}
	switch {
	case k.custom() && k.Format == outputTerraform:
		return command.Usagef("--output terraform: the text of provider %s is for the shell", k.provider)
	case k.custom() && len(names) > 1:
		return command.Usagef("provider %s: got %d ServiceAccounts, want one: its text is for one", k.provider, len(names))
	}
	flags, err := k.given()
	if err != nil {
		return err
	}
	t, err := k.token(ctx, names, flags, k.readAnnotations)
	if err != nil {
		return err
	}
	trust, err := k.trust(t)
	if err != nil {
		return err
	}
	k.warn(t)
	result := &trustResult{trust, format, k.part}
	if k.ForPeople() && result.text() == "" {
		k.Note("%s needs no commands for --part %s", exchange.Clouds()[k.provider].Title, k.part)
	}
	return k.Write(k.CLI, result)
}

// trust returns the configuration for the tokens.
func (k *trustCommand) trust(t *Token) (Trust, error) {
	if k.custom() {
		return NewCustom(t, k.definition)
	}
	return NewTrust(k.provider, t)
}

// format returns the format of an output for people, or an error for flags that cannot be combined.
func (k *trustCommand) format() (string, error) {
	format := cmp.Or(k.Format, outputShell)
	switch {
	case len(k.removeKeys) > 0 && k.keepKeys == "":
		return "", command.Usagef("--remove-key needs --keep-keys")
	case !k.remove:
		return format, nil
	case k.uploadKeys || k.keepKeys != "":
		return "", command.Usagef("--remove uploads no keys: leave out --upload-keys and --keep-keys")
	case format == outputShell:
		return outputRemove, nil
	}
	return "", command.Usagef("--remove: the commands are for the shell, not for --output %s; Terraform removes what is no longer in its files", format)
}

// warn warns if the configuration for a token may be incomplete.
func (k *trustCommand) warn(t *Token) {
	if k.remove {
		return // nothing is trusted
	}
	if err := k.Webhook.Unread; err != nil && k.audience == "" {
		k.Note("warning: the settings of the webhook could not be read, so the audience %s may not be the cluster's: %v. Pass the configuration file with --config.", t.Audience, err)
	}
	if !Public(t.Issuer) && t.JWKS == "" {
		k.Note("warning: the issuer %s is not public, so the cloud cannot read its keys: see %s", t.Issuer, finding.Page("issuer.md"))
	}
}

// define looks up the provider. For a custom one, the settings must be known.
func (k *trustCommand) define() error {
	known := clouds()
	for _, d := range k.settings.Providers {
		switch {
		case d.Plain(): // of no cloud
		case d.Name == k.provider:
			k.definition = d
			return nil
		case !slices.Contains(known, d.Name):
			known = append(known, d.Name)
		}
	}
	choices := strings.Join(known, ", ")
	if err := k.Webhook.Unread; err != nil {
		return fmt.Errorf("provider %q: it is not one of %s, and the settings of the webhook, which may have it, could not be read: %w; pass its configuration file with --config", k.provider, choices, err)
	}
	return command.Usagef("provider %q: the webhook does not have it; choose one of %s", k.provider, choices)
}

// addIssuer sets the issuer, unless a flag did, and the public keys of the cluster if they must be
// uploaded.
func (k *trustCommand) addIssuer(ctx context.Context, t *Token) (err error) {
	takesKeys := k.provider == "gcp" || k.definition.TrustHas(annotations.TrustKeysFile)
	for _, flag := range []string{"upload-keys", "keep-keys"} {
		switch {
		case takesKeys || !k.cmd.Flags().Changed(flag):
		case k.custom():
			return command.Usagef("--%s: the text \"trust\" of provider %s has no {%s}; leave out the flag", flag, k.provider, annotations.TrustKeysFile)
		default:
			return command.Usagef("--%s: %s takes no keys, because it reads the issuer; leave out the flag, or name another cloud with --cloud", flag, exchange.Clouds()[k.provider].Title)
		}
	}
	if t.Issuer == "" {
		if err := k.readIssuer(ctx); err != nil {
			return err
		}
		t.Issuer = k.documents.Discovery.Issuer
	}
	t.KeepKeys = k.keepKeys != ""
	if takesKeys && !k.remove && (k.uploadKeys || t.KeepKeys || !Public(t.Issuer)) {
		t.JWKS, err = k.readKeys(ctx)
	}
	return err
}

// readIssuer reads the documents of the cluster's issuer, once.
func (k *trustCommand) readIssuer(ctx context.Context) (err error) {
	if k.documents == nil {
		_, k.documents, err = ownDocuments(ctx, k.CLI)
	}
	return err
}

// readKeys returns the keys of the cluster, and those in the file of --keep-keys. It reads them once.
func (k *trustCommand) readKeys(ctx context.Context) (string, error) {
	if k.keys != "" {
		return k.keys, nil
	}
	if err := k.readIssuer(ctx); err != nil {
		return "", err
	}
	all := k.documents
	if k.keepKeys != "" {
		var err error
		if all, err = k.keep(all); err != nil {
			return "", fmt.Errorf("--keep-keys %s: %w", k.keepKeys, err)
		}
	}
	k.keys = all.KeysText()
	return k.keys, nil
}

// keep adds the keys in the file of --keep-keys to those of the cluster.
func (k *trustCommand) keep(own *Documents) (*Documents, error) {
	text, err := os.ReadFile(k.keepKeys)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 { // a provider without uploaded keys
		k.Note("warning: %s contains no keys: the upload replaces all keys of the provider", k.keepKeys)
		return own, nil
	}
	uploaded, err := Parse([]byte(own.DiscoveryText()), text)
	if err != nil {
		return nil, err
	}
	merged, err := own.Merge(uploaded, true, k.removeKeys)
	if err != nil {
		return nil, err
	}
	return merged, merged.secret()
}

// trustResult is a configuration in one format.
type trustResult struct {
	Trust
	format, part string
}

// Print implements command.Result.
func (r *trustResult) Print(p *command.Page) { p.Lines(r.text()) }

func (r *trustResult) text() string {
	var parts []string
	order := []string{partCluster, partServiceAccount}
	if r.format == outputRemove {
		slices.Reverse(order)
	}
	for _, part := range order {
		if text := r.Text(r.format, part); text != "" && (r.part == partAll || r.part == part) {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n")
}
