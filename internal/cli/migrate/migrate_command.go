// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	_ "embed" // the help text
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

//go:embed migrate.txt
var migrateHelp string

// migrateCommand holds the flags of migrate.
type migrateCommand struct {
	*command.CLI
	command.Output
	command.Selection
	from          []string
	write, remove bool

	settings *annotations.Settings
}

// NewCommand returns the command migrate.
func NewCommand(c *command.CLI) *cobra.Command {
	k := &migrateCommand{CLI: c}
	k.Files.Recursive = true
	cmd := command.New(migrateHelp, command.NoArgs, func(cmd *cobra.Command, _ []string) error { return k.run(cmd) })
	k.Output.AddFlag(cmd, "Migration")
	k.AddConfig(cmd)
	command.AddAllNamespaces(cmd, &k.All)
	names := peer.Names()
	cmd.Flags().StringSliceVar(&k.from, "from", nil, "Comma-separated webhooks to take over from: "+strings.Join(names, ", ")+".")
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringArrayVarP(&k.Files.Filenames, "filename", "f", nil,
		"File or directory with manifests in YAML or JSON, or - for the standard input, instead of the cluster. Can be repeated.")
	cmd.Flags().BoolVar(&k.write, "write", false, "Write the changes to the ServiceAccounts.")
	cmd.Flags().BoolVar(&k.remove, "remove", false, "Also remove annotations of the other webhook that are no longer needed.")
	return cmd
}

// migration is a plan and its results.
type migration struct {
	*Plan
	// Changes is the number of ServiceAccounts that change.
	Changes int `json:"changes"`
	// Written is the number of those that were written, and Errors are the reasons why others were
	// not.
	Written int      `json:"written"`
	Errors  []string `json:"errors,omitempty"`
	// written reports whether --write was set, and inCluster whether it can be set.
	written, inCluster bool
	// namespace is the namespace that was read, or empty for all, or for files.
	namespace string
}

func (k *migrateCommand) run(cmd *cobra.Command) error {
	if len(k.from) == 0 {
		return command.Usagef("--from is missing: name one or more of %s", strings.Join(peer.Names(), ", "))
	}
	// The others are about the ServiceAccounts of a cluster.
	if err := command.Exclusive(cmd, "filename", "all-namespaces", "write", "remove"); err != nil {
		return err
	}
	peers, err := peer.Named(k.from)
	if err != nil {
		return command.Usagef("--from: %v", err)
	}
	if len(k.Files.Filenames) > 0 {
		k.settings, err = k.FileSettings()
	} else {
		k.settings, err = k.Settings(cmd.Context())
	}
	if err != nil {
		return err
	}
	options := &Options{Settings: k.settings, From: peers, Remove: k.remove, Cluster: len(k.Files.Filenames) == 0}
	if options.Namespace, err = k.Namespace(); err != nil {
		return err
	}
	if following, _ := options.following(); options.Cluster && k.remove && len(following) > 0 {
		return fmt.Errorf("--remove: Lanyard adopts the annotations of %s, and would remove its own with them: remove %[1]s from config.adopt first", following[0].Name)
	}
	result, err := k.plan(cmd.Context(), options)
	if err != nil {
		return err
	}
	for _, message := range result.Errors {
		k.Note("error: %s", message)
	}
	return command.FoundIf(len(result.Errors) > 0, k.Output.Write(k.CLI, result))
}

// plan plans for files, or for a cluster, to which it also writes with --write.
func (k *migrateCommand) plan(ctx context.Context, o *Options) (*migration, error) {
	if o.Cluster {
		return k.cluster(ctx, o)
	}
	stock, err := k.readManifests()
	if err != nil {
		return nil, err
	}
	plan := New(stock, o)
	return &migration{Plan: plan, Changes: len(plan.Changes)}, nil
}

// nameOf names the object of an item.
func nameOf(item *Item) string {
	name := cmp.Or(item.Object, "the cluster")
	if item.Namespace != "" {
		name += " in the namespace " + item.Namespace
	}
	return name
}

func (m *migration) Print(p *command.Page) {
	if len(m.Items) == 0 {
		where := ""
		if m.namespace != "" {
			where = " in the namespace " + m.namespace
		}
		p.Line("nothing was found%s", where)
		return
	}
	object := ""
	for i := range m.Items {
		item := &m.Items[i]
		name := p.Style(command.Title, nameOf(item))
		if item.Source != "" {
			name += ", " + item.Source
		}
		if name != object {
			if object != "" {
				p.Line("")
			}
			p.Text(0, "", name)
			object = name
		}
		printItem(p, item)
	}
	m.printConfig(p)
	p.Line("")
	var counts []string
	for _, result := range []peer.Result{peer.Translated, peer.Setting, peer.Manual, peer.Unsupported, peer.NothingToDo} {
		if n := m.Count(result); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, result))
		}
	}
	p.Text(0, command.Title, strings.Join(counts, ", "))
	switch {
	case m.written:
		p.Line("ServiceAccounts written: %d of %d", m.Written, m.Changes)
	case m.Changes > 0 && m.inCluster:
		p.Line("ServiceAccounts to write: %d, with --write", m.Changes)
	case m.inCluster:
		p.Line("no ServiceAccounts to write")
	}
}

// styles maps the results of a plan to styles.
var styles = map[peer.Result]string{
	peer.Translated: command.Good, peer.Manual: command.Warn, peer.Unsupported: command.Bad, peer.NothingToDo: command.Faint,
}

// printItem writes an item below the name of its object.
func printItem(p *command.Page, item *Item) {
	line := item.Found + ": " + p.Style(styles[item.Result], string(item.Result))
	if item.Becomes != "" {
		line += ", " + item.Becomes
	}
	p.Text(2, "", line)
	if item.Why != "" {
		p.Text(4, command.Faint, item.Why)
	}
}

// printConfig writes the settings.
func (m *migration) printConfig(p *command.Page) {
	if len(m.Config) == 0 {
		return
	}
	text, err := yaml.Marshal(map[string]any{"config": m.Config})
	if err != nil {
		p.Err = err
		return
	}
	p.Line("")
	p.Line("%s", p.Style(command.Title, "values for the chart"))
	p.Lines("  " + strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n  "))
}
