// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

// Grant contains the permissions in a CredentialsRequest, and the names of the identity that
// gets them.
type Grant struct {
	Permissions
	// Name is the name of the identity and of its other objects. Provider is the cloud.
	Name, Provider string
	// Scope is where Azure's roles are assigned.
	Scope string
	// Project is Google's project, and Account the ID of the service account in it.
	Project, Account string
}

// NewRole reports whether the cloud needs a new role for the permissions.
func (g *Grant) NewRole() bool { return len(g.Actions)+len(g.DataActions) > 0 }

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
	command.AddChoice(k.cmd, &b.cloud, "cloud", "Read only the CredentialsRequests of this cloud", append([]string{""}, clouds()...)...)
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
			err = command.Usagef("--filename: CredentialsRequests name the providers and the ServiceAccounts; leave out arguments and --parameter")
		}
		return err
	}
	for _, name := range []string{"recursive", "diff", "cloud", "name", "role-arn-prefix", "resource-group", "scope", "workload-identity-provider", "project", "tag", "remove"} {
		if cmd.Flags().Changed(name) {
			err = command.Usagef("--%s is for CredentialsRequests: name their files with --filename", name)
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
		result := &differences{Differences(old, requests)}
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
	for _, r := range requests {
		trusted, err := k.trustRequest(ctx, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("credentialsrequest %s: %w", r.Name, err))
			continue
		}
		result.Requests = append(result.Requests, trusted)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	k.warn(k.token)
	return k.Write(k.CLI, result)
}

// readBundle returns the requests in the files of a selection.
func (k *trustCommand) readBundle(s *command.Selection) ([]*CredentialsRequest, error) {
	reader := &BundleReader{Note: k.Note}
	err := s.EachText(k.In, maxBundle, reader.Read)
	if err != nil {
		return nil, err
	}
	return reader.Requests(k.bundle.cloud)
}

// parameters returns the provider's parameters for the ServiceAccounts, and the permissions
// of the identity.
func (k *trustCommand) parameters(r *CredentialsRequest) (map[string]string, *Grant, error) {
	b := &k.bundle
	name := strings.TrimPrefix(strings.ReplaceAll(b.name+"-"+r.Namespace+"-"+r.Secret, ".", "-"), "-")
	g := &Grant{Permissions: r.Permissions, Provider: r.Provider, Name: shorten(name, name, maxName), Scope: b.scope, Project: k.flags.Project}
	all := map[string]string{"token-path": r.TokenPath}
	switch r.Provider {
	case "aws":
		prefix := cmp.Or(b.rolePrefix, k.settings.Parameters["aws-role-arn-prefix"])
		if prefix == "" && r.RoleARN == "" {
			return nil, nil, command.Usagef("--role-arn-prefix is missing, and the webhook has no default")
		}
		all["role-arn"] = cmp.Or(r.RoleARN, prefix+g.Name)
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
		all["workload-identity-provider"], all["service-account"] = b.pool, email
	}
	return all, g, nil
}

// trustRequest returns the trust configuration for a CredentialsRequest.
func (k *trustCommand) trustRequest(ctx context.Context, r *CredentialsRequest) (*trustedRequest, error) {
	k.provider = r.Provider
	if err := k.define(); err != nil {
		return nil, err
	}
	parameters, grant, err := k.parameters(r)
	if err != nil {
		return nil, err
	}
	result := &trustedRequest{Name: r.Name, Provider: r.Provider, Identity: grant.Name, Permissions: r.Permissions}
	k.flags.Namespace = r.Namespace
	first, err := k.tokens(ctx, r.ServiceAccounts, parameters)
	if err != nil {
		return nil, err
	}
	first.Grant, first.Identity = grant, grant.Name
	if err := k.completeIssuer(ctx, first); err != nil {
		return nil, err
	}
	k.token = first
	result.Trust, err = NewTrust(r.Provider, first)
	return result, err
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
