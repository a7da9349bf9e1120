// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies is the command policies.
package policies

import (
	_ "embed"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/policies"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

//go:embed help.txt
var help string

// NewCommand returns the command policies.
func NewCommand(c *command.CLI) *cobra.Command {
	var file string
	var providers, reserved []string
	cmd := command.New(help, cobra.NoArgs, func(*cobra.Command, []string) error {
		s, err := read(c, file)
		if err != nil {
			return err
		}
		s.Defaults.ReservedAudiences = slices.Concat(s.Defaults.ReservedAudiences, reserved)
		text, err := policies.Generate(s, providers)
		if err != nil {
			return c.Found("%v", err)
		}
		_, err = fmt.Fprint(c.Out, text)
		return err
	})
	cmd.Flags().StringVar(&file, "config", "", "Configuration file of the webhook. Without it, the defaults.")
	cmd.Flags().StringSliceVar(&providers, "providers", nil, "Names of the providers that take part, separated by commas. Without it, all of them.")
	cmd.Flags().StringSliceVar(&reserved, "reserved-audiences", nil, "Audiences of the API server, such as the issuer, separated by commas. No token may have one of them. The common ones are always included.")
	return cmd
}

// read returns the settings of a file; of the defaults without one.
func read(c *command.CLI, file string) (*settings.Settings, error) {
	o := options.New()
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := o.ReadConfig(text, o.FlagSet()); err != nil {
			return nil, c.Found("%s: %v", file, err)
		}
	}
	s, err := c.Complete(o)
	if err != nil {
		return nil, c.Found("%s: %v", file, err)
	}
	return s, nil
}
