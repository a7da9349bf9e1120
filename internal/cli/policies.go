// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/spf13/cobra"
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
	cmd := command.New(policiesHelp, cobra.NoArgs, func(*cobra.Command, []string) error {
		if file != "" {
			if err := readConfig(file, &source); err != nil {
				return err
			}
		}
		text := ""
		s, err := cluster.PolicySettings(&source)
		if err == nil {
			text, err = policies.Generate(s, name, &source)
		}
		if err != nil {
			return c.Found("%v", err)
		}
		if compares {
			return diffPolicies(c, text)
		}
		_, err = fmt.Fprint(c.Out, text)
		return err
	})
	cmd.Flags().BoolVar(&compares, "diff", false, "Compare with the policies in the cluster: print the changes that an install would make. The exit code is 1 if there are any.")
	cmd.Flags().StringVar(&file, "config", "", "Configuration file of the webhook. Without it, the defaults.")
	cmd.Flags().StringVar(&name, "name", policies.DefaultName, "First part of the names of the policies.")
	cmd.Flags().StringSliceVar(&source.Providers, "providers", nil, "Names of the providers that take part, separated by commas. Without it, all of them.")
	cmd.Flags().StringSliceVar(&source.ReservedAudiences, "reserved-audiences", nil, "Audiences of the API server, such as the issuer, separated by commas. No token may have one of them. The common ones are always included.")
	return cmd
}

// readConfig reads a configuration file.
func readConfig(file string, source *policies.Source) error {
	text, err := os.ReadFile(file)
	if err == nil {
		source.Config, err = yaml.YAMLToJSON(text)
	}
	return err
}
