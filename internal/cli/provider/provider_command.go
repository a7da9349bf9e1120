// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/internal/options"
)

const providerTestHelp = `test reads a configuration file of the webhook, as strictly as the webhook, and
shows for each custom provider in it an annotated ServiceAccount and the
additions to its pods. It needs no cluster. Other settings in the file apply,
too.

The ServiceAccount is an example: app in the namespace team. Its annotations
are the defaults of the file where it has some, and otherwise its examples. To
try a value of yours, pass it with --annotation.

If something is wrong with the file or a value, test shows the error and its
place, and the exit code is 1.`

const providerTestExamples = `  # What do the providers of this file do?
  lanyard provider test examples/providers/alibaba.yaml

  # Is this value allowed?
  lanyard provider test alibaba.yaml --annotation alibaba-sts-region=eu-west-1

  # The variables, for scripts
  lanyard provider test alibaba.yaml -o json | jq .providers[].environment`

// NewCommand returns the command provider.
func NewCommand(c *command.CLI) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provider",
		Short: "Try custom providers.",
		Long:  "provider is about the custom providers of a configuration file.",
	}
	cmd.AddCommand(newProviderTestCommand(c))
	return cmd
}

func newProviderTestCommand(c *command.CLI) *cobra.Command {
	var o command.Output
	given := map[string]string{}
	cmd := &cobra.Command{
		Use:     "test FILE",
		Short:   "Show how the custom providers of a file change pods.",
		Long:    providerTestHelp,
		Example: providerTestExamples,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			result, err := testProviders(cmd, c, text, given)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return o.Write(c, result)
		},
	}
	o.AddFlag(cmd)
	cmd.Flags().StringToStringVar(&given, "annotation", nil, "Annotation of the ServiceAccount, as NAME-PARAMETER=VALUE without the prefix. Can be repeated.")
	return cmd
}

// testProviders tries the providers of a file with this text.
func testProviders(cmd *cobra.Command, c *command.CLI, text []byte, given map[string]string) (*providersResult, error) {
	o := options.New()
	if err := o.ReadConfig(text, o.FlagSet()); err != nil {
		return nil, err
	}
	o.DefaultAllowedIdentities = "" // the identities are examples, so no policy allows them
	settings, err := c.Complete(o)
	if err != nil {
		return nil, err
	}
	results, err := Run(cmd.Context(), &inject.Options{Settings: settings}, o.File, given)
	if err != nil {
		return nil, err
	}
	return &providersResult{results}, nil
}

// providersResult lists the results of the providers of a file.
type providersResult struct {
	Providers []Result `json:"providers"`
}

func (r *providersResult) Print(p *command.Page) {
	for i := range r.Providers {
		if i > 0 {
			p.Line("")
		}
		printProvider(p, &r.Providers[i])
	}
}

func printProvider(p *command.Page, r *Result) {
	section := func(name string, rows [][]string) {
		p.Line("  %s", name)
		p.Columns = nil // the columns of the sections do not line up
		p.Table(4, rows)
	}
	p.Line("%s", p.Style(command.Title, r.Provider))
	var rows [][]string
	for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
		rows = append(rows, []string{key, r.Annotations[key]})
	}
	section("annotations of the ServiceAccount", rows)
	section("token of its pods", [][]string{
		{"audience", r.Token.Audience},
		{"lifetime", (time.Duration(r.Token.ExpirationSeconds) * time.Second).String()},
		{"file", r.Token.File},
		{"volume", r.Volume.Name + ", at " + r.Volume.MountPath},
	})
	rows = nil
	for _, v := range r.Environment {
		rows = append(rows, []string{v.Name, v.Value})
	}
	section("variables of their containers", rows)
	for _, warning := range r.Warnings {
		p.Text(2, command.Warn, "warning: "+warning)
	}
}
