// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/exchange"
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
			return command.Usagef("a provider and a ServiceAccount are missing: %s trust aws|azure|gcp|PROVIDER NAME", c.Name)
		}
		k.provider = args[0]
		return k.run(cmd.Context(), args[1:])
	})
	k.addFlags("the provider", outputShell, outputTerraform)
	k.bundle.addFlags(k)
	k.addKeys("the provider")
	k.cmd.Flags().StringToStringVar(&k.given, "parameter", nil, "Parameter of the provider, as NAME=VALUE. Defaults to the annotation. Can be repeated.")
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
	// given contains the values of flags that override annotations, by parameter.
	given map[string]string
	// flags contains the flags that apply to all ServiceAccounts.
	flags Token
	// bundle contains the flags for CredentialsRequests.
	bundle bundle

	settings   *annotations.Settings
	definition *annotations.Provider
	// token belongs to the current ServiceAccount. values are its annotations or the flags that
	// override them, with those of mappings, which are also in mapped.
	token          *Token
	values, mapped map[string]string
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
	k := &trustCommand{CLI: c, part: partAll, provider: name, given: map[string]string{}}
	k.cmd = command.New(help(name), cobra.MinimumNArgs(1), func(cmd *cobra.Command, args []string) error {
		for name := range k.given {
			k.given[name], _ = cmd.Flags().GetString(name) // the error is for a flag that does not exist
		}
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

// serviceAccountNames parses the arguments NAME, serviceaccount/NAME or serviceaccount NAME,
// without an API server.
func serviceAccountNames(args []string) (names []string, err error) {
	types := []string{"serviceaccount", "serviceaccounts", "sa"}
	if len(args) > 1 && slices.Contains(types, args[0]) {
		args = args[1:]
	}
	for _, arg := range args {
		kind, name, found := strings.Cut(arg, "/")
		if !found {
			kind, name = types[0], arg
		}
		switch {
		case !slices.Contains(types, kind) || name == "":
			return nil, command.Usagef("%s: this command is for serviceaccount", arg)
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
	k.given[name] = ""
	k.cmd.Flags().String(name, "", usage+" Defaults to the annotation "+k.provider+"-"+name+".")
}

func (k *trustCommand) run(ctx context.Context, args []string) error {
	names, err := serviceAccountNames(args)
	if err != nil {
		return err
	}
	if k.flags.Namespace, err = k.Namespace(); err != nil {
		return err
	}
	if k.settings, err = k.Settings(ctx); err != nil {
		return err
	}
	if err := k.define(); err != nil {
		return err
	}
	format, err := k.format()
	if err != nil {
		return err
	}
	if k.custom() && k.Format == outputTerraform {
		return command.Usagef("--output terraform: the text of provider %s is for the shell", k.provider)
	}
	if k.custom() && len(names) > 1 {
		return command.Usagef("provider %s: got %d ServiceAccounts, want one: its text is for one", k.provider, len(names))
	}
	t, err := k.tokens(ctx, names, nil)
	if err != nil {
		return err
	}
	if err := k.completeIssuer(ctx, t); err != nil {
		return err
	}
	var trust Trust
	if k.custom() {
		trust, err = NewCustom(t, k.definition)
	} else {
		trust, err = NewTrust(k.provider, t)
	}
	if err != nil {
		return err
	}
	k.warn(t)
	return k.Write(k.CLI, &trustResult{trust, format, k.part})
}

// format returns the format of an output for people, or an error if --remove does not fit to it.
func (k *trustCommand) format() (string, error) {
	format := cmp.Or(k.Format, outputShell)
	switch {
	case !k.remove:
		return format, nil
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
		k.Note("warning: the issuer %s is not public, so the cloud cannot read its keys: see docs/issuer.md", t.Issuer)
	}
}

// tokens returns the tokens of the ServiceAccounts, which must have the same identity. Their annotations
// are the given ones, or nil to read them.
func (k *trustCommand) tokens(ctx context.Context, names []string, parameters map[string]string) (first *Token, err error) {
	var values map[string]string // of the first one
	for _, name := range names {
		t := k.flags
		t.ServiceAccount, t.Prefix = name, annotations.Prefix
		k.token, k.values = &t, map[string]string{}
		if parameters == nil {
			err = k.readAnnotations(ctx)
		}
		if err != nil {
			return nil, err
		}
		for _, parameter := range slices.Sorted(maps.Keys(parameters)) {
			k.set(parameter, parameters[parameter])
		}
		k.share(values)
		if err := k.identify(); err != nil {
			return nil, err
		}
		if k.remove {
			k.unset()
		}
		if first == nil {
			first, values = &t, k.values
			continue
		}
		if err := k.differs(first); err != nil {
			return nil, err
		}
		first.Others = append(first.Others, &t)
	}
	return first, nil
}

// share copies the identity from the annotations of another ServiceAccount, if any, to a
// ServiceAccount without one.
func (k *trustCommand) share(of map[string]string) {
	for _, name := range identityParameters(k.definition) {
		if key := annotations.Key(k.definition, name); k.values[key] == "" && of[key] != anyGUID {
			k.set(name, of[key])
		}
	}
}

// differs returns an error if the token has a different identity than the first one.
func (k *trustCommand) differs(first *Token) error {
	t := k.token
	what, got, want := "the audience", t.Audience, first.Audience
	for _, name := range identityParameters(k.definition) {
		if is, was := t.Values[name], first.Values[name]; is != was && is != anyGUID && was != anyGUID {
			what, got, want = k.definition.Key(name), is, was
			break
		}
	}
	if got == want {
		return nil
	}
	return fmt.Errorf("%s is %q for %s, and %q for %s: run the command once for each", what, want, first.ServiceAccount, got, t.ServiceAccount)
}

// identityParameters returns the names of the parameters that identify the trusted identity.
func identityParameters(d *annotations.Provider) (names []string) {
	for i := range d.Parameters {
		p := &d.Parameters[i]
		if !p.ClusterOnly && (p.Identity || p.Required || slices.Contains(d.PrincipalParameters, p.Name)) {
			names = append(names, p.Name)
		}
	}
	return names
}

// IdentityOf returns the annotations that say which identities of clouds a ServiceAccount has.
func IdentityOf(s *annotations.Settings, all map[string]string) map[string]string {
	identity := map[string]string{}
	for _, d := range s.Providers {
		for _, name := range identityParameters(d) {
			key := annotations.Key(d, name)
			if value, found := all[key]; found {
				identity[key] = value
			}
		}
	}
	return identity
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
	if err := k.Webhook.Unread; err != nil {
		return fmt.Errorf("provider %q: the settings of the webhook could not be read: %w; pass its configuration file with --config", k.provider, err)
	}
	return command.Usagef("provider %q: the webhook does not have it; choose one of %s", k.provider, strings.Join(known, ", "))
}

// unset makes the token remove the annotations of the provider, in place of adding some. The webhook
// denies those that are left without an identity.
func (k *trustCommand) unset() {
	t := k.token
	t.Annotate, t.ClientIDKey = nil, ""
	for _, key := range slices.Sorted(maps.Keys(k.values)) {
		if _, mapped := k.mapped[key]; !mapped && key != annotations.Audience {
			t.Annotate = append(t.Annotate, key+"-")
		}
	}
}

// readAnnotations reads the annotations of the ServiceAccount and of its mappings.
func (k *trustCommand) readAnnotations(ctx context.Context) error {
	t, all := k.token, map[string]string{}
	var serviceAccount *metav1.ObjectMeta
	client, _, err := k.Clients()
	if err == nil {
		serviceAccount, err = readServiceAccount(ctx, client, t.Namespace, t.ServiceAccount)
	}
	switch _, responded := errors.AsType[*apierrors.StatusError](err); {
	case apierrors.IsNotFound(err):
		k.Note("serviceaccount %s/%s does not exist yet", t.Namespace, t.ServiceAccount)
	case err != nil && !responded && t.Issuer != "":
		k.Note("warning: serviceaccount %s/%s is not read: no cluster responds", t.Namespace, t.ServiceAccount)
	case err != nil:
		return err
	default:
		maps.Copy(all, serviceAccount.Annotations)
		k.NoteUnknown(serviceAccount)
	}
	k.mapped = k.settings.Map(t.Namespace, t.ServiceAccount, all)
	maps.Copy(all, k.mapped)
	maps.DeleteFunc(all, func(key, _ string) bool {
		name, ours := strings.CutPrefix(key, annotations.Prefix)
		return !ours || key != annotations.Audience && !k.definition.OwnsKey(name)
	})
	k.values = all
	return nil
}

// completeIssuer sets the issuer, unless a flag did, and the public keys of the cluster if
// they must be uploaded.
func (k *trustCommand) completeIssuer(ctx context.Context, t *Token) error {
	d := k.definition
	possible := k.provider == "gcp" || d.TrustHas(annotations.TrustKeysFile)
	k.uploadKeys = k.uploadKeys || k.keepKeys != ""
	if k.uploadKeys && !possible {
		return command.Usagef("--upload-keys: the text \"trust\" of provider %s has no {%s}", d.Name, annotations.TrustKeysFile)
	}
	if len(k.removeKeys) > 0 && k.keepKeys == "" {
		return command.Usagef("--remove-key needs --keep-keys")
	}
	upload := func() bool { return possible && (k.uploadKeys || !Public(t.Issuer)) }
	if t.Issuer != "" && !upload() {
		return nil
	}
	_, documents, err := ownDocuments(ctx, k.CLI)
	if err != nil {
		return err
	}
	t.Issuer = cmp.Or(t.Issuer, documents.Discovery.Issuer)
	if upload() {
		if documents, err = k.keep(documents); err != nil {
			return fmt.Errorf("--keep-keys %s: %w", k.keepKeys, err)
		}
		t.JWKS, t.KeepKeys = string(documents.KeysText), k.keepKeys != ""
	}
	for _, other := range t.Others {
		other.Issuer = t.Issuer
	}
	return nil
}

// keep adds the keys in the file of --keep-keys to those of the cluster.
func (k *trustCommand) keep(own *Documents) (*Documents, error) {
	if k.keepKeys == "" {
		return own, nil
	}
	text, err := os.ReadFile(k.keepKeys)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 { // a provider without uploaded keys
		k.Note("warning: %s contains no keys: the upload replaces all keys of the provider", k.keepKeys)
		return own, nil
	}
	uploaded, err := Parse(own.DiscoveryText, text)
	if err != nil {
		return nil, err
	}
	merged, err := own.Merge(uploaded, true, k.removeKeys)
	if err != nil {
		return nil, err
	}
	return merged, merged.secret()
}

// set sets an annotation, and notes it as needed if the ServiceAccount has a different value.
func (k *trustCommand) set(name, value string) {
	if key := annotations.Key(k.definition, name); value != "" && k.values[key] != value {
		k.values[key] = value
		k.token.Annotate = append(k.token.Annotate, key+"="+value)
	}
}

// identify determines the identity as the webhook does: from the flags, the annotations and
// the cluster's defaults, in this order.
func (k *trustCommand) identify() error {
	d, s := k.definition, k.settings
	for _, name := range slices.Sorted(maps.Keys(k.given)) {
		if !d.OwnsKey(d.Key(name)) {
			return command.Usagef("--parameter: provider %s has no parameter %q that an annotation sets", d.Name, name)
		}
		k.set(name, k.given[name])
	}
	k.set("audience", k.audience)
	if err := k.complete(); err != nil {
		return err
	}
	account, errs := s.ParseServiceAccount(k.token.Namespace, k.token.ServiceAccount, k.values)
	if len(errs) > 0 {
		return k.mistake(errs[0], annotations.Prefix+d.Key(""))
	}
	k.token.Audience, k.token.Values = account.Identities[0].Audience, account.Identities[0].Values
	return nil
}

// anyGUID stands for the IDs of Azure's client and tenant, which trust does not need.
const anyGUID = "00000000-0000-0000-0000-000000000000"

// complete sets the annotations that are missing for an identity of the provider.
func (k *trustCommand) complete() error {
	d := k.definition
	asks := slices.ContainsFunc(d.Parameters, func(p annotations.Parameter) bool {
		return p.Identity && k.values[annotations.Key(d, p.Name)] != ""
	})
	for i := range d.Parameters {
		p := &d.Parameters[i]
		key, hasDefault := annotations.Key(d, p.Name), k.settings.Parameters[d.Key(p.Name)] != ""
		unneeded := "" // any valid value, if the result does not need the parameter
		if k.provider == "azure" {
			unneeded = anyGUID
		} else if d.Trust != "" && !d.TrustHas(p.Name) {
			unneeded = p.Example
		}
		switch {
		case !p.Required || p.ClusterOnly || k.values[key] != "":
		case hasDefault && p.Identity && !asks:
			k.set(p.Name, annotations.ClusterDefault)
		case hasDefault:
		case unneeded == "":
			return k.noParameter(p.Name, key)
		default:
			k.values[key] = unneeded
			if p.Identity {
				k.token.ClientIDKey = key
			}
		}
	}
	return nil
}

// noParameter returns the error for a parameter without a value.
func (k *trustCommand) noParameter(name, key string) error {
	flag := "--" + name
	if k.custom() {
		flag = "--parameter " + name + "=VALUE"
	}
	defaults := "the cluster has no default"
	if unread := k.Webhook.Unread; unread != nil {
		defaults = fmt.Sprintf("the default of the cluster is not known, because the settings of the webhook could not be read: %v; pass its configuration file with --config", unread)
	}
	return command.Usagef("%s is missing: the ServiceAccount has no annotation %s, and %s", flag, key, defaults)
}

// mistake returns the error for a mistake in an annotation or in the flag that overrides it.
// prefix is the prefix of the provider's annotations.
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

// trustResult is a configuration in one format.
type trustResult struct {
	Trust
	format, part string
}

func (r *trustResult) Print(p *command.Page) {
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
	p.Lines(strings.Join(parts, "\n"))
}
