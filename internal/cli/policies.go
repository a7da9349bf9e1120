// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/policies"
)

//go:embed policies.txt
var policiesHelp string

func newPoliciesCommand(c *command.CLI) *cobra.Command {
	var file, name string
	var source policies.Source
	var compares bool
	k := &compiler{CLI: c}
	k.Files.Recursive = true
	cmd := command.New(policiesHelp, command.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if err := cmp.Or(command.Exclusive(cmd, "compile", "cluster"), command.Exclusive(cmd, "static", "diff")); err != nil {
			return err
		}
		if k.static != "" && !k.compiles() && k.webhook == "" {
			return command.Usagef("--static needs --compile, --cluster or --webhook: policies in files of an API server cannot refer to ServiceAccounts")
		}
		if k.webhook != "" && k.static == "" {
			return command.Usagef("--webhook needs --static")
		}
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			return command.Usagef("--name %q: %s", name, errs[0])
		}
		text, err := k.fromFlags(cmd.Context(), name, file, &source)
		if err != nil {
			return err
		}
		if compares {
			if err := forgotten(cmd, c, name); err != nil {
				return err
			}
			return diffPolicies(cmd.Context(), c, name, text)
		}
		_, err = fmt.Fprint(c.Out, text)
		return err
	})
	cmd.Flags().StringArrayVar(&k.Files.Filenames, "compile", nil, "File or directory with ServiceAccounts in YAML or JSON, or - for standard input. Can be repeated. The policies then contain their identities and ignore annotations in the cluster. Namespaces in the files restrict the identities.")
	cmd.Flags().BoolVar(&k.fromCluster, "cluster", false, "Compile the ServiceAccounts and Namespaces in the cluster.")
	cmd.Flags().StringVar(&k.static, "static", "", "Write files for --admission-control-config-file of kube-apiserver into this directory, whose path must be the same on the API server's node. Needs --compile, --cluster or --webhook.")
	cmd.Flags().StringVar(&k.webhook, "webhook", "", "File with the webhook configurations in YAML or JSON, such as the output of helm template with the value webhook.url, or - for standard input. Written to the directory of --static.")
	cmd.Flags().BoolVar(&compares, "diff", false, "Print the differences between the policies in the cluster and this output. The exit code is 1 if there are any.")
	cmd.Flags().StringVar(&file, "config", "", "Configuration file of the webhook. By default, the built-in settings are used.")
	cmd.Flags().StringVar(&name, "name", policies.DefaultName, "Prefix of the names of the policies.")
	cmd.Flags().StringSliceVar(&source.Providers, "providers", nil, "Comma-separated providers to include. Defaults to all.")
	cmd.Flags().StringSliceVar(&source.ReservedAudiences, "reserved-audiences", nil, "Comma-separated audiences of the API server, such as the issuer. The policies deny tokens with these audiences. Common audiences of API servers are always included.")
	return cmd
}

// fromFlags returns the text to print for the settings in a configuration file, if any, and in source.
func (k *compiler) fromFlags(ctx context.Context, name, file string, source *policies.Source) (string, error) {
	if err := readConfig(file, source); err != nil {
		return "", fmt.Errorf("--config: %w", err)
	}
	s, err := cluster.PolicySettings(source)
	if err != nil {
		return "", err
	}
	return k.generate(ctx, s, name, source)
}

// readConfig reads a configuration file, if any.
func readConfig(file string, source *policies.Source) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if source.Config, err = yaml.YAMLToJSON(text); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
