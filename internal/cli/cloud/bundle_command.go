// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

// Grant contains the permissions in a CredentialsRequest, and the names of the identity that
// gets them.
type Grant struct {
	Permissions
	// Name is the name of the identity and of its other objects, or empty without a Grant. Provider is
	// the cloud.
	Name, Provider string
	// ExistingRole reports whether AWS's role belongs to somebody else.
	ExistingRole bool
	// Scope is where Azure's roles are assigned.
	Scope string
	// Project is Google's project, and Account the ID of the service account in it.
	Project, Account string
}

// NewRole reports whether the cloud needs a new role for the permissions.
func (g *Grant) NewRole() bool { return len(g.Actions)+len(g.DataActions) > 0 }

// nameStart matches what each cloud allows at the start of an identity's name.
var nameStart = regexp.MustCompile(`^[A-Za-z0-9.-]*$`)

// maxGoogleAccount is the length of the longest ID of a service account of Google.
const maxGoogleAccount = 30

// bundle contains the flags for CredentialsRequests.
type bundle struct {
	command.Selection
	old                                  command.Selection
	cloud, name, rolePrefix, scope, pool string
}

// addFlags adds the flags to trust.
func (b *bundle) addFlags(k *trustCommand) {
	flags := k.cmd.Flags()
	b.AddFiles(k.cmd)
	flags.StringArrayVar(&b.old.Files.Filenames, "diff", nil, "File or directory with older CredentialsRequests to compare with. Can be repeated.")
	command.AddChoice(k.cmd, &b.cloud, "cloud", "Read only the CredentialsRequests of this cloud", clouds()...)
	flags.StringVar(&b.name, "name", "", "Prefix of the names of the identities, such as the name of the cluster.")
	flags.StringVar(&b.rolePrefix, "role-arn-prefix", "", "Prefix of the ARNs of the roles, such as arn:aws:iam::111122223333:role/. Defaults to the setting of the webhook.")
	flags.StringVar(&k.flags.ResourceGroup, "resource-group", "", "Resource group of the managed identities. By default, the output asks for it.")
	flags.StringVar(&b.scope, "scope", "", "Scope of Azure's roles, such as /subscriptions/ID/resourceGroups/NAME.")
	flags.StringVar(&b.pool, "workload-identity-provider", "", "Google workload identity provider. Defaults to the setting of the webhook.")
	flags.StringVar(&k.flags.Project, "project", "", "Project ID of the Google service accounts and roles.")
	k.addTags()
	k.addRemove()
}

// check returns an error for conflicting flags and arguments.
func (b *bundle) check(cmd *cobra.Command, args []string) (err error) {
	if len(b.Files.Filenames) > 0 {
		if len(args) > 0 || cmd.Flags().Changed("parameter") {
			return command.Usagef("--filename: CredentialsRequests name the providers and the ServiceAccounts; leave out arguments and --parameter")
		}
		if !nameStart.MatchString(b.name) {
			return command.Usagef("--name %q: want letters, digits and -, because the names of identities start with it", b.name)
		}
		if len(b.old.Files.Filenames) > 0 && (cmd.Flags().Changed("remove") || cmd.Flags().Changed("upload-keys") || cmd.Flags().Changed("keep-keys")) {
			return command.Usagef("--diff only compares: leave out --remove, --upload-keys and --keep-keys")
		}
		return nil
	}
	for _, name := range []string{"recursive", "diff", "cloud", "name", "role-arn-prefix", "resource-group", "scope", "workload-identity-provider", "project", "tag", "remove"} {
		if cmd.Flags().Changed(name) {
			err = command.Usagef("--%s is for CredentialsRequests, whose files --filename names; a custom provider does not have it", name)
		}
	}
	return err
}

// runBundle runs trust for CredentialsRequests.
func (k *trustCommand) runBundle(ctx context.Context) error {
	b := &k.bundle
	requests, err := k.readBundle(&b.Selection)
	if err != nil {
		return err
	}
	if len(b.old.Files.Filenames) > 0 {
		old, err := k.readBundle(&b.old)
		if err != nil {
			return fmt.Errorf("--diff: %w", err)
		}
		result := &differences{differencesOf(old, requests)}
		return command.FoundIf(len(result.Differences) > 0, k.Write(k.CLI, result))
	}
	result := &bundleResult{}
	if result.format, err = k.format(); err != nil {
		return err
	}
	if k.settings, err = k.Settings(ctx); err != nil {
		return err
	}
	var errs []error
	var last *Token
	for _, r := range requests {
		trusted, token, err := k.trustRequest(ctx, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("credentialsrequest %s: %w", r.Name, err))
			continue
		}
		result.Requests, last = append(result.Requests, trusted), token
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	k.warn(last)
	return k.Write(k.CLI, result)
}

// readBundle returns the requests in the files of a selection.
func (k *trustCommand) readBundle(s *command.Selection) ([]*CredentialsRequest, error) {
	reader := &bundleReader{note: k.Note}
	err := s.EachText(k.In, maxBundle, func(name string, text []byte) error {
		return command.EachManifest(name, bytes.NewReader(text), reader.add)
	})
	if err != nil {
		return nil, err
	}
	return reader.of(k.bundle.cloud)
}

// parametersOf returns the provider's parameters for the ServiceAccounts, and the permissions
// of the identity.
func (k *trustCommand) parametersOf(r *CredentialsRequest) (map[string]given, *Grant, error) {
	b := &k.bundle
	name := strings.TrimPrefix(strings.ReplaceAll(b.name+"-"+r.Namespace+"-"+r.Secret, ".", "-"), "-")
	g := &Grant{Permissions: r.Permissions, Provider: r.Provider, Name: shorten(name, name, maxName), Scope: b.scope, Project: k.flags.Project}
	all := map[string]given{"token-path": {r.TokenPath, "spec.cloudTokenPath"}, "audience": {k.audience, "--audience"}}
	switch r.Provider {
	case "aws":
		prefix := cmp.Or(b.rolePrefix, k.settings.Parameters["aws-role-arn-prefix"])
		all["role-arn"] = given{prefix + g.Name, "--role-arn-prefix"}
		switch g.ExistingRole = r.RoleARN != ""; {
		case g.ExistingRole && k.Format == outputTerraform:
			return nil, nil, errors.New("spec.providerSpec.stsIAMRoleARN: the role exists already, and Terraform changes only roles that it has created; use --output shell")
		case g.ExistingRole:
			all["role-arn"] = given{r.RoleARN, "spec.providerSpec.stsIAMRoleARN"}
		case prefix == "":
			return nil, nil, command.Usagef("--role-arn-prefix is missing, and the webhook has no default")
		}
	case "azure":
		if !strings.HasPrefix(g.Scope, "/") {
			return nil, nil, command.Usagef("--scope: got %q, want a scope such as /subscriptions/ID/resourceGroups/NAME", g.Scope)
		}
	case "gcp":
		g.Account = shorten(name, name, maxGoogleAccount)
		email := g.Account + "@" + g.Project + ".iam.gserviceaccount.com"
		if g.Project == "" || provider.GCPProjectOf(email) != g.Project {
			return nil, nil, command.Usagef("--project: %s is not the name of a service account, so the ID of the project %q or the start of its name %q is wrong", email, g.Project, b.name)
		}
		all["workload-identity-provider"], all["service-account"] = given{b.pool, "--workload-identity-provider"}, given{email, "--project"}
	}
	return all, g, nil
}

// trustRequest returns the trust configuration for a CredentialsRequest, and its token.
func (k *trustCommand) trustRequest(ctx context.Context, r *CredentialsRequest) (*trustedRequest, *Token, error) {
	k.provider = r.Provider
	if err := k.define(); err != nil {
		return nil, nil, err
	}
	parameters, grant, err := k.parametersOf(r)
	if err != nil {
		return nil, nil, err
	}
	k.namespace, k.flags.Grant, k.flags.Identity = r.Namespace, *grant, grant.Name
	token, err := k.token(ctx, r.ServiceAccounts, parameters, nil)
	if err != nil {
		return nil, nil, err
	}
	trust, err := k.trust(token)
	return &trustedRequest{r.Name, r.Provider, grant.Name, trust, r.Permissions}, token, err
}

// trustedRequest is the trust configuration for a CredentialsRequest.
type trustedRequest struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	Identity string `json:"identity"`
	Trust    Trust  `json:"trust"`
	Permissions
}

// bundleResult is the trust configuration for all CredentialsRequests.
type bundleResult struct {
	Requests []*trustedRequest `json:"requests"`
	format   string
}

// Print implements command.Result. It prints the common part of a cloud before its first request.
func (r *bundleResult) Print(p *command.Page) {
	cloud := ""
	for _, one := range r.Requests {
		if one.Provider != cloud {
			cloud = one.Provider
			if text := one.Trust.Text(r.format, partCluster); text != "" && r.format != outputRemove {
				p.Lines(text + "\n")
			}
		}
		p.Lines("# CredentialsRequest " + one.Name + "\n" + strings.TrimRight(one.Trust.Text(r.format, partServiceAccount), "\n") + "\n\n")
	}
}

// differences lists the differences between two bundles.
type differences struct {
	Differences []Difference `json:"differences"`
}

// Print prints one line for each thing that changed.
func (d *differences) Print(p *command.Page) {
	for _, one := range d.Differences {
		p.Line("%s, %s:", one.Name, one.Provider)
		for _, line := range one.Removed {
			p.Line("  - %s", line)
		}
		for _, line := range one.Added {
			p.Line("  + %s", line)
		}
	}
}
