// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/migrate"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

const migrateHelp = `migrate shows how Lanyard takes over from another webhook: the annotations that
the other webhook reads in a cluster or in manifests, their translation, and the
steps to do by hand. With --write, it adds Lanyard's annotations. The
annotations of the other webhook stay, so that both webhooks can run, unless
--remove is set.

Without --filename, it reads the cluster, and --write changes ServiceAccounts
only: a change of a pod template would restart the pods. With --filename, it
reads manifests, and --write changes these files. Comments, order and quotes
stay. --output diff shows the changes as a diff that "git apply" accepts. Whole
lines are changed: JSON and braces in YAML are listed, to edit by hand.

Write nothing with --remove while Lanyard still adopts from the other webhook
(config.adopt): it would remove the adopted annotations, too.

--verify compares, for one running pod of each workload, the credentials that
it has with the credentials of a new pod: role, client, audience, lifetime, and
the paths of the token. The new pod is a dry run. All webhooks inject into it,
so delete the configuration of the other webhook first; running pods are not
affected.

The exit code is 1 if something could not be written, or if --verify finds a
difference. docs/migrate has the whole way, for each webhook.`

const migrateExamples = `  # Take stock of a cluster
  lanyard migrate --from eks --all-namespaces

  # See the changes of the manifests in a directory
  lanyard migrate --from eks,azure -f manifests/ --output diff

  # Make them
  lanyard migrate --from eks,azure -f manifests/ --write

  # Annotate the ServiceAccounts of a cluster
  lanyard migrate --from eks --all-namespaces --write

  # Compare running pods with new ones
  lanyard migrate --from eks --all-namespaces --verify`

// outputDiff is one more value of --output.
const outputDiff = "diff"

// migrateCommand holds the flags of migrate.
type migrateCommand struct {
	*CLI
	output
	from, files                []string
	all, write, remove, verify bool
}

func newMigrateCommand(c *CLI) *cobra.Command {
	k := &migrateCommand{CLI: c}
	cmd := &cobra.Command{
		Use:     "migrate --from NAME",
		Short:   "Take over from another webhook.",
		Long:    migrateHelp,
		Example: migrateExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) },
	}
	k.output.addFlag(cmd, outputDiff)
	k.addConfig(cmd)
	addAllNamespaces(cmd, &k.all)
	names := peer.Names()
	cmd.Flags().StringSliceVar(&k.from, "from", nil, "The webhooks to take over from, separated by commas: "+strings.Join(names, ", ")+".")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // the error is for a flag that does not exist
	cmd.Flags().StringArrayVarP(&k.files, "filename", "f", nil, "File or directory with manifests in YAML or JSON, or - for the standard input, instead of the cluster. Can be repeated.")
	cmd.Flags().BoolVar(&k.write, "write", false, "Write the changes.")
	cmd.Flags().BoolVar(&k.remove, "remove", false, "Also remove the annotations that are not needed any more.")
	cmd.Flags().BoolVar(&k.verify, "verify", false, "Compare the credentials of running and new pods, instead of making a plan.")
	return cmd
}

// migration is a plan and its results.
type migration struct {
	*migrate.Plan
	// Changes is the number of ServiceAccounts or files that change.
	Changes int `json:"changes"`
	// Written is the number of them that were written, Errors are why others were not.
	Written int      `json:"written"`
	Errors  []string `json:"errors,omitempty"`
	// the kind of the changes: ServiceAccounts, or files.
	what    string
	written bool
	diff    string
}

func (k *migrateCommand) run(ctx context.Context) error {
	if err := k.check(); err != nil {
		return err
	}
	peers, err := peer.Named(k.from)
	if err != nil {
		return usagef("--from: %v", err)
	}
	if k.verify {
		return k.verifyPods(ctx, peers)
	}
	s, err := k.settingsOf(ctx)
	if err != nil {
		return err
	}
	options := &migrate.Options{Keys: s.Keys, From: peers, Remove: k.remove, Cluster: len(k.files) == 0}
	if options.Namespace, err = k.namespace(); err != nil {
		return err
	}
	var result *migration
	if options.Cluster {
		result, err = k.cluster(ctx, options)
	} else {
		result, err = k.manifests(options)
	}
	if err != nil {
		return err
	}
	result.written = k.write
	if err := k.show(result); err != nil {
		return err
	}
	if len(result.Errors) > 0 {
		return errFound
	}
	return nil
}

// settingsOf returns the settings of the cluster, or of --config. Files are read without
// a cluster.
func (k *migrateCommand) settingsOf(ctx context.Context) (*settings.Settings, error) {
	if len(k.files) > 0 && k.configPath == "" {
		return k.builtin()
	}
	return k.settings(ctx)
}

// check checks that the flags fit together.
func (k *migrateCommand) check() error {
	switch files := len(k.files) > 0; {
	case len(k.from) == 0:
		return usagef("--from: got none, want one or more of %s", strings.Join(peer.Names(), ", "))
	case k.verify && (files || k.write || k.remove):
		return usagef("--verify: got it with --filename, --write or --remove, want it without them")
	case files && k.all:
		return usagef("--all-namespaces: got it with --filename, want one of them")
	case !files && k.format == outputDiff:
		return usagef("--output diff: got it without --filename, want files to compare with")
	case k.write && slices.Contains(k.files, "-"):
		return usagef("--write: got it with the standard input, want files; --output diff shows the changes")
	}
	return nil
}

// show writes the result.
func (k *migrateCommand) show(result *migration) error {
	for _, message := range result.Errors {
		k.note("%s: %s", k.name, message)
	}
	if k.format != outputDiff {
		return k.output.write(k.CLI, result)
	}
	for i := range result.Items {
		if item := &result.Items[i]; item.Result == peer.Manual || item.Result == peer.Unsupported {
			k.note("%s: %s: %s: %s", item.Result, nameOf(item), item.Found, item.Why)
		}
	}
	_, err := fmt.Fprint(k.Out, result.diff)
	return err
}

// nameOf names the object of an item.
func nameOf(item *migrate.Item) string {
	name := item.Object
	if name == "" {
		name = "the cluster"
	}
	if item.Namespace != "" {
		name += " in the namespace " + item.Namespace
	}
	return name
}

func (m *migration) print(p *page) {
	if len(m.Items) == 0 {
		p.line("nothing was found")
		return
	}
	object := ""
	for i := range m.Items {
		item := &m.Items[i]
		name := p.style(title, nameOf(item))
		if item.Source != "" {
			name += ", " + item.Source
		}
		if name != object {
			if object != "" {
				p.line("")
			}
			p.text(0, "", name)
			object = name
		}
		printItem(p, item)
	}
	m.printConfig(p)
	p.line("")
	var counts []string
	for _, result := range []peer.Result{peer.Translated, peer.Setting, peer.Manual, peer.Unsupported, peer.NothingToDo} {
		if n := m.Count(result); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, result))
		}
	}
	p.text(0, title, strings.Join(counts, ", "))
	switch {
	case m.written:
		p.line("%s written: %d of %d", m.what, m.Written, m.Changes)
	case m.Changes > 0:
		p.line("%s to write: %d, with --write", m.what, m.Changes)
	default:
		p.line("no %s to write", m.what)
	}
}

// printItem writes an item below the name of its object.
func printItem(p *page, item *migrate.Item) {
	style := map[peer.Result]string{peer.Translated: good, peer.Manual: warn, peer.Unsupported: bad, peer.NothingToDo: faint}[item.Result]
	line, becomes := item.Found+": "+p.style(style, string(item.Result)), item.Becomes
	if whole := line + ", " + becomes; becomes != "" && (p.width == 0 || cells(whole) <= p.width-2) {
		line, becomes = whole, ""
	}
	p.text(2, "", line)
	if becomes != "" {
		p.text(4, "", becomes)
	}
	if item.Why != "" {
		p.text(4, faint, item.Why)
	}
}

// printConfig writes the settings.
func (m *migration) printConfig(p *page) {
	if len(m.Config) == 0 {
		return
	}
	text, err := yaml.Marshal(map[string]any{"config": m.Config})
	if err != nil {
		p.err = err
		return
	}
	p.line("")
	p.line("%s", p.style(title, "values for the chart"))
	for line := range strings.Lines(string(text)) {
		p.line("  %s", strings.TrimSuffix(line, "\n"))
	}
}
