// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"context"
	_ "embed" // the help text
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

//go:embed help.txt
var help string

// injectCommand holds the flags of inject.
type injectCommand struct {
	*command.CLI
	command.Selection
	cluster bool
	options *options.Options
	// all are the flags of the webhook, for its configuration file.
	all *pflag.FlagSet
}

// NewCommand returns the command inject.
func NewCommand(c *command.CLI) *cobra.Command {
	k := &injectCommand{CLI: c, options: options.New()}
	cmd := command.New(help, cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return k.run(cmd) })
	k.AddFiles(cmd)
	groups := k.options.Flags()
	k.all = options.AllFlags(groups)
	for _, name := range []string{"Injection", "Providers"} {
		groups.FlagSet(name).VisitAll(func(flag *pflag.Flag) {
			if flag.Name != "annotation-prefix" { // the flag of all commands
				cmd.Flags().AddFlag(flag)
			}
		})
	}
	config := *k.all.Lookup("config")
	config.Usage = "YAML file with the settings of the webhook, as its own --config. Other settings in it have no effect."
	cmd.Flags().AddFlag(&config)
	cmd.Flags().BoolVar(&k.cluster, "cluster", false, "Use the settings of the webhook in the cluster, instead of flags of the webhook.")
	return cmd
}

func (k *injectCommand) run(cmd *cobra.Command) error {
	if len(k.Files.Filenames) == 0 {
		return command.Usagef("--filename is missing: name a file or directory with manifests, or - for the standard input")
	}
	settings, err := k.webhookSettings(cmd.Context())
	if err != nil {
		return err
	}
	namespace, err := k.Namespace()
	if err != nil {
		return err
	}
	var documents []*Document
	err = k.EachFile(k.In, func(name string, r io.Reader) error {
		found, err := Read(name, r)
		documents = append(documents, found...)
		return err
	})
	if err != nil {
		return err
	}
	results, err := Inject(cmd.Context(), documents, settings, namespace)
	if err != nil {
		return err
	}
	if denied := k.report(results); denied > 0 {
		return k.Found("the webhook would deny %d objects; nothing was written", denied)
	}
	return Write(k.Out, documents)
}

// webhookSettings returns the settings of the webhook in the cluster, or of the flags.
func (k *injectCommand) webhookSettings(ctx context.Context) (s *settings.Settings, err error) {
	if k.cluster {
		given := k.options.ConfigFile != ""
		k.all.VisitAll(func(flag *pflag.Flag) { given = given || flag.Changed })
		if given {
			return nil, command.Usagef("--cluster cannot be used with flags of the webhook")
		}
		s, err := k.Settings(ctx)
		if err == nil && k.CLI.Webhook.Unread != nil {
			err = fmt.Errorf("read the settings of the webhook: %w", k.CLI.Webhook.Unread)
		}
		return s, err
	}
	err = k.options.LoadConfig(k.all)
	if err == nil {
		s, err = k.Complete(k.options)
	}
	if err != nil {
		return nil, command.Usagef("%w", err)
	}
	return s, nil
}

// report writes warnings and findings to the error stream, and returns the number of
// objects that are denied.
func (k *injectCommand) report(results []Result) (denied int) {
	for _, r := range results {
		name := r.Object + " in the namespace " + r.Namespace
		switch {
		case r.Denied:
			denied++
			k.Note("denied: %s: %s: %s", name, r.Reason, r.Message)
		case r.Reason == reason.ServiceAccountNotFound:
			k.Note("unchanged: %s: %s: %s", name, r.Reason, r.Message)
		}
		for _, warning := range r.Warnings {
			k.Note("warning: %s: %s", name, warning)
		}
	}
	return denied
}
